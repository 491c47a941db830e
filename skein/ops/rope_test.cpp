// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/rope.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "skein/ops/rms_norm.h"
#include "skein/ops/swiglu.h"

namespace skein::ops {
namespace {

TEST(Rope, TurnsHalfSplitPairsByPositionTimesFrequency) {
  at::manual_seed(4);
  const auto x = at::randn({1, 2, 7, 6}, at::kDouble);
  const auto y = rotate(x.transpose(1, 2), rope_table(7, 6, 500.0, x.options())).transpose(1, 2);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t t = 0; t < 7; ++t) {
      for (int64_t i = 0; i < 3; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(500.0, -2.0 * static_cast<double>(i) / 6);
        const double a = x[0][h][t][i].item<double>(), b = x[0][h][t][i + 3].item<double>();
        // The table's angles are fp32.
        EXPECT_NEAR(y[0][h][t][i].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-5);
        EXPECT_NEAR(y[0][h][t][i + 3].item<double>(), b * std::cos(angle) + a * std::sin(angle),
                    1e-5);
      }
    }
  }
}

TEST(Rope, TableIsOfTheAskedDtype) {
  EXPECT_EQ(rope_table(3, 4, 1e4, at::TensorOptions(at::kBFloat16)).cos.scalar_type(),
            at::kBFloat16);
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const auto x = at::tensor({3.0, 4.0}).to(at::kDouble).view({1, 2});
  const auto weight = at::tensor({1.0, 10.0}).to(at::kDouble);
  const double size = std::sqrt(12.5 + 0.5);
  const auto y = rms_norm(x, weight, 0.5);
  EXPECT_NEAR(y[0][0].item<double>(), 3 / size, 1e-12);
  EXPECT_NEAR(y[0][1].item<double>(), 40 / size, 1e-12);
}

TEST(RmsNorm, SquaresOfSixteenBitValuesAreFormedInFp32) {
  const auto y =
      rms_norm(at::ones({1, 1000}, at::kBFloat16) * 100, at::ones({1000}, at::kBFloat16), 0);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(y.to(at::kFloat).mean().item<float>(), 1, 1e-6);
}

TEST(Swiglu, IsSiluOfTheGateTimesUp) {
  const auto y = swiglu(at::tensor({2.0, -1.0}), at::tensor({3.0, 5.0}));
  EXPECT_NEAR(y[0].item<double>(), 2 / (1 + std::exp(-2.0)) * 3, 1e-6);
  EXPECT_NEAR(y[1].item<double>(), -1 / (1 + std::exp(1.0)) * 5, 1e-6);
}

TEST(Rope, ChannelsBeyondTheTableStay) {
  at::manual_seed(4);
  const auto x = at::randn({2, 5, 3, 10}, at::kDouble);
  const auto table = rope_table(5, 6, 100, x.options());
  const auto found = rotate(x, table);
  EXPECT_TRUE(at::equal(found.narrow(-1, 0, 6), rotate(x.narrow(-1, 0, 6), table)));
  EXPECT_TRUE(at::equal(found.narrow(-1, 6, 4), x.narrow(-1, 6, 4)));
}

}  // namespace
}  // namespace skein::ops
