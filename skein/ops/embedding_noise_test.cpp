// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/embedding_noise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "skein/core/error.h"
#include "skein/ops/dropout.h"

namespace skein::ops {
namespace {

at::Tensor keys(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

uint64_t stream(int64_t step) {
  return dropout_stream({.seed = 3, .step = step}, -1, DropoutSite::kEmbeddingNoise);
}

TEST(EmbeddingNoise, IsUniformAndAsLargeAsNeftuneSays) {
  constexpr int64_t kTokens = 400, kChannels = 300;
  const auto noise = embedding_noise(at::zeros({1, kTokens, kChannels}, at::kDouble),
                                     {.alpha = 5, .stream = stream(1), .documents = keys({7})});
  const double magnitude = 5 / std::sqrt(double{kTokens} * kChannels);
  EXPECT_LE(noise.abs().max().item<double>(), magnitude);
  EXPECT_GT(noise.max().item<double>(), 0.9999 * magnitude);
  EXPECT_LT(noise.min().item<double>(), -0.9999 * magnitude);
  EXPECT_NEAR(noise.mean().item<double>() / magnitude, 0, 0.01);
  EXPECT_NEAR(noise.square().mean().item<double>() / (magnitude * magnitude), 1.0 / 3, 0.01);
}

TEST(EmbeddingNoise, DependsOnStepDocumentAndPositionAlone) {
  const auto x = at::randn({2, 5, 7}, at::kDouble);
  const EmbeddingNoise both{.alpha = 2, .stream = stream(1), .documents = keys({4, 9})};
  const auto whole = embedding_noise(x, both);
  EXPECT_TRUE(at::equal(whole, embedding_noise(x, both)));
  auto next = both;
  next.stream = stream(2);
  EXPECT_FALSE(at::equal(whole, embedding_noise(x, next)));
  // The second row alone, padded to eight tokens.
  const auto padded = at::cat({x.narrow(0, 1, 1), at::zeros({1, 3, 7}, at::kDouble)}, 1);
  const auto alone = embedding_noise(
      padded, {.alpha = 2, .stream = stream(1), .documents = keys({9}), .lengths = keys({5})});
  EXPECT_TRUE(at::equal(alone.narrow(1, 0, 5), whole.narrow(0, 1, 1)));
  // Both behind each other.
  const auto run =
      embedding_noise(x.view({1, 10, 7}), {.alpha = 2,
                                           .stream = stream(1),
                                           .documents = keys({4, 4, 4, 4, 4, 9, 9, 9, 9, 9}),
                                           .lengths = keys(std::vector<int64_t>(10, 5)),
                                           .positions = keys({0, 1, 2, 3, 4, 0, 1, 2, 3, 4})});
  EXPECT_TRUE(at::equal(run.view({2, 5, 7}), whole));
}

TEST(EmbeddingNoise, PassesGradientsAndRoundsOnce) {
  const EmbeddingNoise noise{.alpha = 3, .stream = stream(1), .documents = keys({4, 9})};
  const auto x = at::randn({2, 5, 7}, at::kDouble).set_requires_grad(true);
  const auto gradient = torch::autograd::grad({embedding_noise(x, noise).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(gradient, at::ones_like(gradient)));
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto short_x = x.detach().to(dtype);
    const auto wide = embedding_noise(short_x.to(at::kFloat), noise);
    EXPECT_TRUE(at::equal(embedding_noise(short_x, noise), wide.to(dtype)));
  }
}

TEST(EmbeddingNoise, NoneIsTheInputItself) {
  const auto x = at::randn({2, 5, 7});
  EXPECT_TRUE(embedding_noise(x, {}).is_same(x));
}

TEST(EmbeddingNoise, RefusesOtherTypes) {
  const EmbeddingNoise noise{.alpha = 3, .stream = 1, .documents = keys({1})};
  EXPECT_THROW(embedding_noise(at::zeros({1, 2, 3}, at::kInt), noise), UserError);
}

}  // namespace
}  // namespace skein::ops
