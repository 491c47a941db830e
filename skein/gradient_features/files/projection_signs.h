// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The signs of the random projection (core/random.h), tile by tile, on the host. Nothing of the
// matrix is ever stored. A parameter's stream comes from projection.h.

#include <cstdint>

#include "skein/core/random.h"

namespace skein::gradient_features {

// Elements and columns of a tile of the matrix, ends not included.
struct SignTile {
  int64_t first_element = 0, last_element = 0;
  int64_t first_column = 0, last_column = 0;

  int64_t elements() const { return last_element - first_element; }
  int64_t columns() const { return last_column - first_column; }
};

// Writes the tile's signs, row-major, an element a row. `signs` has room for
// elements() * columns() floats. Fastest where the columns begin and end at multiples of 128.
void fill_signs(uint64_t stream, const SignTile& tile, float* signs);

}  // namespace skein::gradient_features
