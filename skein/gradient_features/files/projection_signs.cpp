// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/projection_signs.h"

#include <algorithm>

namespace skein::gradient_features {
namespace {

constexpr int64_t kBitsPerWord = 32;

// A constant mask for each bit, and no branch: the compiler makes vectors of it on any processor.
void expand_word(uint32_t word, float* signs) {
  for (uint32_t bit = 0; bit < kBitsPerWord; ++bit) {
    signs[bit] = (word & (uint32_t{1} << bit)) != 0 ? 1.0F : -1.0F;
  }
}

void expand(const random::Words& bits, float* signs) {
  for (int word = 0; word < 4; ++word) expand_word(bits.word[word], signs + kBitsPerWord * word);
}

// The columns of one group that a tile has, where that is not all of them.
void expand_part(const random::Words& bits, int64_t first, int64_t last, float* signs) {
  float whole[kColumnsPerCall];
  expand(bits, whole);
  std::copy(whole + first, whole + last, signs);
}

void fill_row(uint64_t stream, int64_t element, const SignTile& tile, float* signs) {
  for (int64_t column = tile.first_column; column < tile.last_column;) {
    const int64_t group = column / kColumnsPerCall, begin = group * kColumnsPerCall;
    const int64_t end = std::min(begin + kColumnsPerCall, tile.last_column);
    const auto bits =
        sign_bits(stream, static_cast<uint64_t>(element), static_cast<uint64_t>(group));
    if (column == begin && end == begin + kColumnsPerCall) {
      expand(bits, signs);
    } else {
      expand_part(bits, column - begin, end - begin, signs);
    }
    signs += end - column;
    column = end;
  }
}

}  // namespace

void fill_signs(uint64_t stream, const SignTile& tile, float* signs) {
  for (int64_t element = tile.first_element; element < tile.last_element; ++element) {
    fill_row(stream, element, tile, signs);
    signs += tile.columns();
  }
}

}  // namespace skein::gradient_features
