// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/checksum.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

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

#ifdef __x86_64__
// As "Fast CRC computation for generic polynomials using PCLMULQDQ" (Intel, 2009) has it: a long
// text is folded, 64 bytes at a time, into 16 bytes with the same remainder. Constants are powers
// of x modulo the polynomial, both with their bits reversed.
constexpr size_t kFolded = 64, kLane = 16;

struct Powers {
  uint64_t low, high;
};
constexpr Powers kOf64Bytes{0x0154442bd4, 0x01c6e41596}, kOf16Bytes{0x01751997d0, 0x00ccaa009e};
constexpr Powers kOf8Bytes{0x0163cd6124, 0}, kBarrett{0x01db710641, 0x01f7011641};

[[gnu::target("pclmul,sse4.1")]] inline __m128i both(const Powers& powers) {
  return _mm_set_epi64x(static_cast<int64_t>(powers.high), static_cast<int64_t>(powers.low));
}
[[gnu::target("pclmul,sse4.1")]] inline __m128i lane(std::string_view bytes, size_t place) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + place));
}
// `sum`, moved on by what the powers stand for, and what lies there.
[[gnu::target("pclmul,sse4.1")]] inline __m128i fold(__m128i sum, __m128i powers, __m128i there) {
  const auto low = _mm_clmulepi64_si128(sum, powers, 0x00);
  const auto high = _mm_clmulepi64_si128(sum, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

// The remainder after all whole lanes, of which there are four at least; not inverted.
[[gnu::target("pclmul,sse4.1")]] uint32_t folded(std::string_view& bytes, uint32_t value) {
  std::array<__m128i, 4> sums{};
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = lane(bytes, i * kLane);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(static_cast<int>(value)));
  bytes.remove_prefix(kFolded);
  for (; bytes.size() >= kFolded; bytes.remove_prefix(kFolded)) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = fold(sums[i], both(kOf64Bytes), lane(bytes, i * kLane));
    }
  }
  auto sum = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) sum = fold(sum, both(kOf16Bytes), sums[i]);
  for (; bytes.size() >= kLane; bytes.remove_prefix(kLane)) {
    sum = fold(sum, both(kOf16Bytes), lane(bytes, 0));
  }
  // 128 bits to 64, to 32, and the remainder by Barrett's two products.
  const auto low_words = _mm_setr_epi32(-1, 0, -1, 0);
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, both(kOf16Bytes), 0x10));
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), both(kOf8Bytes), 0x00));
  auto quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), both(kBarrett), 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), both(kBarrett), 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}

bool can_fold() {
  static const bool can =
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return can;
}
#endif

}  // namespace

uint32_t crc32(std::string_view bytes, uint32_t before) {
#ifdef __x86_64__
  if (bytes.size() >= kFolded && can_fold()) before = ~folded(bytes, ~before);
#endif
  return checksum(kCrc32Tables, bytes, before);
}
uint32_t crc32c(std::string_view bytes) { return checksum(kCrc32cTables, bytes, 0); }
uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8; }

}  // namespace skein::report
