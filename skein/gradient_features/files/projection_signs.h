// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which sign does the random projection have for one element of a parameter and one column?
//
// The sign is one bit of philox (core/random.h), 128 columns a call. It depends on the seed, the
// parameter's name, the element and the column alone: the same matrix on every device, for every
// split of the work and every subset of the parameters, and a projection to fewer columns is the
// beginning of one to more. Nothing of it is ever stored. Test vectors: docs/gradient_format.md.
//
// CUDA kernels include this header too: C++17, no standard containers. A parameter's stream comes
// from projection.h.

#include <cstdint>

#include "skein/core/random.h"

namespace skein::gradient_features {

inline constexpr int64_t kColumnsPerCall = 128;  // signs of one philox call

// The signs of the columns [128 * group, 128 * group + 128) for one element: that of column c is
// bit c % 32 of word (c % 128) / 32.
SKEIN_HOST_DEVICE inline random::Words sign_bits(uint64_t stream, uint64_t element,
                                                 uint64_t group) {
  return random::philox(stream, element, group);
}

// +1 for a bit that is 1, -1 for 0. `bit` is 0 or 1.
SKEIN_HOST_DEVICE inline float sign_of_bit(uint32_t bit) { return bit != 0 ? 1.0F : -1.0F; }

SKEIN_HOST_DEVICE inline float projection_sign(uint64_t stream, uint64_t element, uint64_t column) {
  const auto bits = sign_bits(stream, element, column / kColumnsPerCall);
  return sign_of_bit(bits.word[(column % kColumnsPerCall) / 32] >> (column % 32) & 1);
}

// Elements and columns of a tile of the matrix, ends not included.
struct SignTile {
  int64_t first_element = 0, last_element = 0;
  int64_t first_column = 0, last_column = 0;

  int64_t elements() const { return last_element - first_element; }
  int64_t columns() const { return last_column - first_column; }
};

// On the host: writes the tile's signs, row-major, an element a row. `signs` has room for
// elements() * columns() floats. Fastest where the columns begin and end at multiples of 128.
void fill_signs(uint64_t stream, const SignTile& tile, float* signs);

}  // namespace skein::gradient_features
