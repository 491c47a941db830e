// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The two 32-bit checksums of the log formats that other programs read.

#include <cstdint>
#include <string_view>

namespace skein::report {

uint32_t crc32(std::string_view bytes);   // zlib's: W&B files
uint32_t crc32c(std::string_view bytes);  // Castagnoli's
// CRC-32C, rotated and shifted as TensorFlow does, so that a checksum of checksums is no trap.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace skein::report
