// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Is a block what was written there?

#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::spill {

// XXH3, 64 bits: the same on every instruction set, at the speed of the best one. The block's
// number is part of it, so that right bytes in the wrong place are found out too.
uint64_t checksum(uint64_t block, std::span<const std::byte> bytes);

// The same by AVX2, three times as fast as what distributions compile. For processors that have it.
uint64_t checksum_avx2(uint64_t block, const void* bytes, size_t size);

}  // namespace skein::spill
