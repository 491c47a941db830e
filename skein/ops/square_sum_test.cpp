// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/square_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace skein::ops {
namespace {

TEST(SquareSum, AddsToWhatIsThere) {
  const auto x = at::arange(100, at::kFloat);
  const auto sum = at::full({}, 0.5, at::kDouble);
  add_square_sum(x, sum);
  EXPECT_NEAR(sum.item<double>(), 0.5 + 99.0 * 100 * 199 / 6, 1e-6);
}

TEST(SquareSum, SquaresThatFp32CannotHold) {
  const auto sum = at::full({}, 0.0, at::kDouble);
  add_square_sum(at::full({64}, 1e30, at::kFloat), sum);
  EXPECT_NEAR(sum.item<double>() / 64e60, 1, 1e-6);
}

}  // namespace
}  // namespace skein::ops
