// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/low_rank.h"

#include <algorithm>
#include <array>

#include "skein/core/error.h"
#include "skein/core/parallel.h"

namespace skein::convert {
namespace {

// So many columns at a time stay in registers.
constexpr size_t kTile = 32;

void add_tile(std::span<const float> left, const float* right, uint64_t stride, float scale,
              float* row) {
  std::array<float, kTile> sum{};
  for (size_t k = 0; k < left.size(); ++k) {
    const float factor = left[k];
    const float* values = right + k * stride;
    for (size_t j = 0; j < kTile; ++j) sum[j] += factor * values[j];
  }
  for (size_t j = 0; j < kTile; ++j) row[j] += scale * sum[j];
}

void add_row(const LowRank& update, uint64_t index, float* row) {
  const std::span<const float> left(update.left.data() + index * update.rank, update.rank);
  const auto* right = update.right.data();
  uint64_t column = 0;
  for (; column + kTile <= update.columns; column += kTile) {
    add_tile(left, right + column, update.columns, update.scale, row + column);
  }
  for (; column < update.columns; ++column) {
    float sum = 0;
    for (uint64_t k = 0; k < update.rank; ++k) sum += left[k] * right[k * update.columns + column];
    row[column] += update.scale * sum;
  }
}

}  // namespace

void add_low_rank(const LowRank& update, uint64_t first_row, std::span<float> block, int threads) {
  SKEIN_CHECK(update.left.size() == update.rows * update.rank &&
                  update.right.size() == update.rank * update.columns && update.columns > 0 &&
                  block.size() % update.columns == 0 &&
                  first_row + block.size() / update.columns <= update.rows,
              "shapes of an update");
  constexpr uint64_t kRowsAtATime = 64;
  const uint64_t rows = block.size() / update.columns;
  const auto parts = static_cast<int64_t>((rows + kRowsAtATime - 1) / kRowsAtATime);
  for_each_index(parts, threads, [&](int64_t part) {
    const uint64_t begin = static_cast<uint64_t>(part) * kRowsAtATime;
    for (uint64_t row = begin; row < std::min(rows, begin + kRowsAtATime); ++row) {
      add_row(update, first_row + row, block.data() + row * update.columns);
    }
  });
}

std::vector<float> transposed(std::span<const float> matrix, uint64_t rows, uint64_t columns) {
  std::vector<float> result(matrix.size());
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) result[j * rows + i] = matrix[i * columns + j];
  }
  return result;
}

}  // namespace skein::convert
