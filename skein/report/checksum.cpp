// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace skein::report {
namespace {

// Sixteen bytes at a time: table k has the checksum of a byte with k zeros behind it.
constexpr size_t kStride = 16;
using Tables = std::array<std::array<uint32_t, 256>, kStride>;

// Bits are numbered from the least significant one, so the polynomials are reversed.
constexpr Tables make_tables(uint32_t polynomial) {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t zeros = 1; zeros < kStride; ++zeros) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[zeros - 1][byte];
      tables[zeros][byte] = (value >> 8) ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr auto kCrc32Tables = make_tables(0xEDB88320);
constexpr auto kCrc32cTables = make_tables(0x82F63B78);

// Four bytes with so many zeros behind them.
uint32_t of_word(const Tables& tables, uint32_t word, size_t zeros) {
  return tables[zeros + 3][word & 0xFF] ^ tables[zeros + 2][word >> 8 & 0xFF] ^
         tables[zeros + 1][word >> 16 & 0xFF] ^ tables[zeros][word >> 24];
}

uint32_t checksum(const Tables& tables, std::string_view bytes, uint32_t before) {
  uint32_t value = ~before;
  for (; bytes.size() >= kStride; bytes.remove_prefix(kStride)) {
    std::array<uint32_t, 4> words;
    std::memcpy(words.data(), bytes.data(), kStride);
    value = of_word(tables, words[0] ^ value, 12) ^ of_word(tables, words[1], 8) ^
            of_word(tables, words[2], 4) ^ of_word(tables, words[3], 0);
  }
  for (const char c : bytes) {
    value = (value >> 8) ^ tables[0][(value ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return ~value;
}

}  // namespace

uint32_t crc32(std::string_view bytes, uint32_t before) {
  return checksum(kCrc32Tables, bytes, before);
}
uint32_t crc32c(std::string_view bytes) { return checksum(kCrc32cTables, bytes, 0); }
uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8; }

}  // namespace skein::report
