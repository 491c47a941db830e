// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// XXH3 digests: names of random streams, configuration and data identity, manifests.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace skein {

uint64_t hash64(std::string_view text, uint64_t seed = 0);
// 128 bits as 32 lower-case hexadecimal digits.
std::string digest(std::span<const std::byte> bytes);
std::string digest(std::string_view text);

}  // namespace skein
