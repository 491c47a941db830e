// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Inner products of many long rows with a few.

#include <cstdint>
#include <span>

namespace skein::gradient_features {

// Rows of `columns` floats each, the beginnings of rows that lie `stride` apart.
struct RowsView {
  const float* data = nullptr;
  int64_t count = 0;
  int64_t stride = 0;
};

// products[i * others.count + j] is the inner product of row i and other j, and squares[i] that of
// row i with itself; summed in float over 1024 columns, beyond that in double. The order of sums
// does not depend on `threads`.
void dot_products(const RowsView& rows, const RowsView& others, int64_t columns, int threads,
                  std::span<double> products, std::span<double> squares);

}  // namespace skein::gradient_features
