// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/verify/tolerance.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace skein::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Tolerance, DifferencesAreRelativeToTheFirst) {
  EXPECT_EQ(relative_difference(3, 3), 0);
  EXPECT_DOUBLE_EQ(relative_difference(2, 1), 0.5);
  EXPECT_DOUBLE_EQ(relative_difference(-1, 1), 2);
  EXPECT_EQ(relative_difference(0, 0), 0);
  EXPECT_EQ(relative_difference(0, 1e-300), kInfinity);
  const std::vector<double> a = {1, 2, 4}, b = {1, 2.5, 4.5};
  EXPECT_DOUBLE_EQ(largest_difference(a, b), 0.25);
}

// A step that two runs leave out alike is no difference; one that a run alone leaves out is.
TEST(Tolerance, WhatIsNotFiniteEqualsItselfAlone) {
  EXPECT_EQ(relative_difference(kNan, kNan), 0);
  EXPECT_EQ(relative_difference(kInfinity, kInfinity), 0);
  for (const double other : {1.0, 0.0, -kInfinity}) {
    EXPECT_EQ(relative_difference(kInfinity, other), kInfinity);
    EXPECT_EQ(relative_difference(other, kNan), kInfinity);
  }
}

TEST(Tolerance, FewerBitsAllowMore) {
  EXPECT_TRUE(bit_equal("").is_exact());
  double before = 0;
  for (const auto dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const auto allowed = rounding_of(dtype);
    EXPECT_GT(allowed.numbers, before);
    EXPECT_GE(allowed.parameters, allowed.numbers);
    EXPECT_FALSE(allowed.why.empty());
    before = allowed.numbers;
  }
  EXPECT_GT(rounding_of(DType::kF32, /*moments_8bit=*/true).numbers,
            rounding_of(DType::kF32).numbers);
}

}  // namespace
}  // namespace skein::train
