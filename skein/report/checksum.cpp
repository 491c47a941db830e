// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/checksum.h"

#include <array>
#include <bit>

namespace skein::report {
namespace {

// Bits are numbered from the least significant one, so the polynomials are reversed.
constexpr std::array<uint32_t, 256> make_table(uint32_t polynomial) {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kCrc32Table = make_table(0xEDB88320);
constexpr auto kCrc32cTable = make_table(0x82F63B78);

uint32_t checksum(const std::array<uint32_t, 256>& table, std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char c : bytes)
    value = (value >> 8) ^ table[(value ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~value;
}

}  // namespace

uint32_t crc32(std::string_view bytes) { return checksum(kCrc32Table, bytes); }
uint32_t crc32c(std::string_view bytes) { return checksum(kCrc32cTable, bytes); }
uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8; }

}  // namespace skein::report
