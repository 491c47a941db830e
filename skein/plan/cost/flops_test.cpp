// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/cost/flops.h"

#include <gtest/gtest.h>

#include "skein/plan/families/gpt2.h"

namespace skein::plan {
namespace {

TEST(Flops, ByHand) {
  const Dimensions shape{.layers = 2,
                         .channels = 8,
                         .query_width = 4 * 3,
                         .key_width = 2 * 3,
                         .inner = 20,
                         .vocabulary = 100,
                         .gated = true};
  // A layer: q 8*12, k and v 8*6 each, o 12*8, three matrices of 8*20; and the head once.
  EXPECT_EQ(matmul_parameters(shape), 2 * (96 + 48 + 48 + 96 + 480) + 800);
  EXPECT_EQ(training_flops_per_token(shape, 16), 6.0 * 2336 + 6 * 2 * 12 * 16);
}

TEST(Flops, AWindowSavesWhatItDoesNotSee) {
  Dimensions shape{.layers = 3, .query_width = 10, .window = 4, .windowed_layers = 2};
  // Sixteen tokens: 4 - 4²/2·16 seen on average, against 8.
  EXPECT_EQ(training_flops_per_token(shape, 16), 6.0 * 10 * (16 + 2 * 2 * (4 - 0.5)));
  const double within = training_flops_per_token(shape, 4);
  shape.windowed_layers = 0;
  EXPECT_EQ(training_flops_per_token(shape, 4), within);
}

TEST(Flops, Gpt2Small) {
  Gpt2Config config;
  config.n_inner = 4 * config.n_embd;
  const auto gpt2 = config.dimensions();
  // 12 * 12 * 768^2 in the layers.
  EXPECT_EQ(matmul_parameters(gpt2), 84934656 + 50257 * 768);
  EXPECT_NEAR(training_flops_per_token(gpt2, 1024), 7.978e8, 1e5);
}

TEST(Flops, UtilisationIsTheShareOfAllDevices) {
  EXPECT_DOUBLE_EQ(model_flops_utilisation(400e12, 800e12, 1), 0.5);
  EXPECT_DOUBLE_EQ(model_flops_utilisation(400e12, 800e12, 2), 0.25);
}

}  // namespace
}  // namespace skein::plan
