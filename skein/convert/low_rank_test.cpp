// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/low_rank.h"

#include <gtest/gtest.h>

#include <random>

namespace skein::convert {
namespace {

std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (auto& value : values) value = uniform(generator);
  return values;
}

// 71 columns: two tiles and a rest.
TEST(LowRank, AddsTheProduct) {
  const uint64_t rows = 130, rank = 5, columns = 71;
  const LowRank update{.rows = rows,
                       .rank = rank,
                       .columns = columns,
                       .left = random_values(rows * rank, 1),
                       .right = random_values(rank * columns, 2),
                       .scale = 0.5F};
  const auto before = random_values(rows * columns, 3);
  auto after = before;
  add_low_rank(update, 0, after, 2);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (uint64_t k = 0; k < rank; ++k) {
        sum += double{update.left[i * rank + k]} * update.right[k * columns + j];
      }
      ASSERT_NEAR(after[i * columns + j], before[i * columns + j] + 0.5 * sum, 1e-6);
    }
  }
}

TEST(LowRank, BlocksAndThreadsChangeNoBit) {
  const uint64_t rows = 200, rank = 3, columns = 40;
  const LowRank update{.rows = rows,
                       .rank = rank,
                       .columns = columns,
                       .left = random_values(rows * rank, 1),
                       .right = random_values(rank * columns, 2),
                       .scale = 2};
  const auto before = random_values(rows * columns, 3);
  auto whole = before, parts = before;
  add_low_rank(update, 0, whole, 4);
  for (uint64_t row = 0; row < rows; row += 50) {
    add_low_rank(update, row, std::span(parts).subspan(row * columns, 50 * columns), 1);
  }
  EXPECT_EQ(whole, parts);
}

TEST(LowRank, Transposes) {
  const std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(transposed(matrix, 2, 3), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

}  // namespace
}  // namespace skein::convert
