// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Loops in plain C++ over several elements at a time, compiled for several instruction sets.
#include "skein/gradient_features/files/projection_signs.h"

#include <algorithm>
#include <array>

namespace skein::gradient_features {
namespace {

constexpr int64_t kBitsPerWord = 32;
constexpr int kLanes = 16;  // elements at a time

// random::philox() of kLanes consecutive elements.
struct LaneWords {
  uint32_t word[4][kLanes];
};

inline void philox_lanes(uint64_t key, uint64_t first_element, uint64_t group, LaneWords& c) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t element = first_element + static_cast<uint64_t>(lane);
    c.word[0][lane] = static_cast<uint32_t>(element);
    c.word[1][lane] = static_cast<uint32_t>(element >> 32);
    c.word[2][lane] = static_cast<uint32_t>(group);
    c.word[3][lane] = static_cast<uint32_t>(group >> 32);
  }
  for (int round = 0; round < 10; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t product0 = kMultiplier0 * c.word[0][lane];
      const uint64_t product1 = kMultiplier1 * c.word[2][lane];
      c.word[0][lane] = static_cast<uint32_t>(product1 >> 32) ^ c.word[1][lane] ^ key0;
      c.word[1][lane] = static_cast<uint32_t>(product1);
      c.word[2][lane] = static_cast<uint32_t>(product0 >> 32) ^ c.word[3][lane] ^ key1;
      c.word[3][lane] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

constexpr auto kBits = [] {
  std::array<uint32_t, kBitsPerWord> bits{};
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint32_t{1} << i;
  return bits;
}();

// A constant for each bit, no shift by a variable and no branch: vectors on any processor.
inline void expand(const LaneWords& bits, int lane, float* signs) {
  for (int word = 0; word < 4; ++word) {
    const uint32_t value = bits.word[word][lane];
    for (int64_t bit = 0; bit < kBitsPerWord; ++bit) {
      signs[kBitsPerWord * word + bit] = (value & kBits[bit]) != 0 ? 1.0F : -1.0F;
    }
  }
}

// Columns [first, last) of a group, of `count` elements from `element` on; rows are `stride` apart.
struct Part {
  uint64_t stream;
  int64_t element, count;
  int64_t group, first, last;
  int64_t stride;
  float* signs;
};

inline void fill_part(const Part& part) {
  LaneWords bits;
  philox_lanes(part.stream, static_cast<uint64_t>(part.element), static_cast<uint64_t>(part.group),
               bits);
  const bool is_whole = part.first == 0 && part.last == random::kColumnsPerCall;
  for (int64_t lane = 0; lane < part.count; ++lane) {
    auto* row = part.signs + lane * part.stride;
    if (is_whole) {
      expand(bits, static_cast<int>(lane), row);
    } else {
      float whole[random::kColumnsPerCall];
      expand(bits, static_cast<int>(lane), whole);
      std::copy(whole + part.first, whole + part.last, row);
    }
  }
}

[[gnu::flatten]] void fill_plain(const Part& part) { fill_part(part); }
#ifdef __x86_64__
[[gnu::flatten, gnu::target("avx2")]] void fill_avx2(const Part& part) { fill_part(part); }
#endif

using Fill = void (*)(const Part&);
Fill fastest_fill() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0) return fill_avx2;
#endif
  return fill_plain;
}

}  // namespace

void fill_signs(uint64_t stream, const SignTile& tile, float* signs) {
  static const Fill fill = fastest_fill();
  for (int64_t element = tile.first_element; element < tile.last_element; element += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, tile.last_element - element);
    for (int64_t column = tile.first_column; column < tile.last_column;) {
      const int64_t group = column / random::kColumnsPerCall,
                    begin = group * random::kColumnsPerCall;
      const int64_t end = std::min(begin + random::kColumnsPerCall, tile.last_column);
      fill({stream, element, count, group, column - begin, end - begin, tile.columns(),
            signs + (element - tile.first_element) * tile.columns() + column - tile.first_column});
      column = end;
    }
  }
}

}  // namespace skein::gradient_features
