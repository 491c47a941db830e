// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Inner products of many long rows with a few.

#include <cstdint>
#include <vector>

namespace skein::gradient_features {

// Rows of `columns` floats each, the beginnings of rows that lie `stride` apart.
struct RowsView {
  const float* data = nullptr;
  int64_t count = 0;
  int64_t stride = 0;
};

struct DotProducts {
  std::vector<double> products;  // [i * others.count + j] of row i and other j
  std::vector<double> squares;   // of row i with itself
};

// Summed in float over 1024 columns, beyond that in double. The order of sums does not depend on
// `threads`.
DotProducts dot_products(const RowsView& rows, const RowsView& others, int64_t columns,
                         int threads);

}  // namespace skein::gradient_features
