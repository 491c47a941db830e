// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The two 32-bit checksums of formats that other programs read.

#include <cstdint>
#include <string_view>

namespace skein::report {

// zlib's: W&B files, ZIP archives. `before` is the checksum of what came before `bytes`: long
// content may come in parts. Gigabytes per second.
uint32_t crc32(std::string_view bytes, uint32_t before = 0);
uint32_t crc32c(std::string_view bytes);  // Castagnoli's
// CRC-32C, rotated and shifted as TensorFlow does, so that a checksum of checksums is no trap.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace skein::report
