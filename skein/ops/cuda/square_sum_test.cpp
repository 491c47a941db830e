// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/square_sum.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "skein/ops/device.h"

namespace skein::ops {
namespace {

double square_sum(const at::Tensor& x) {
  const auto sum = at::zeros({}, x.options().dtype(at::kDouble));
  add_square_sum(x, sum);
  return sum.item<double>();
}

TEST(CudaSquareSum, EqualsTheCpus) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const int64_t count : {8, 128, 1000, 1'000'064, 20'000'128, 77}) {
      const auto x = at::randn({count}).to(dtype);
      const double expected = square_sum(x), found = square_sum(x.to(at::kCUDA));
      // The CPU adds one element after the other: 2e7 fp64 sums drift by some 1e-12.
      EXPECT_NEAR(found / expected, 1, 5e-12) << dtype << " " << count;
    }
  }
}

TEST(CudaSquareSum, GivesTheSameBitsEveryTime) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const auto x = at::randn({30'000'000}).to(at::kCUDA);
  const double first = square_sum(x);
  for (int turn = 0; turn < 20; ++turn) EXPECT_EQ(square_sum(x), first);
}

TEST(CudaSquareSum, CopiesNothing) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const auto x = at::randn({1 << 26}).to(at::kCUDA);
  const auto before = device_memory(true);
  square_sum(x);
  const int64_t peak = std::max(before.peak, before.allocated + (1 << 20));
  EXPECT_LE(device_memory(true).peak, peak);
}

TEST(CudaSquareSum, OneBadElementShows) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto x = at::randn({1'000'064}).to(at::kCUDA);
    x[777'777] = bad;
    EXPECT_FALSE(std::isfinite(square_sum(x)));
  }
}

}  // namespace
}  // namespace skein::ops
