// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/embedding.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace skein::ops {
namespace {

at::Tensor gradient_of(const at::Tensor& weight, const at::Tensor& tokens,
                       const at::Tensor& incoming) {
  const auto leaf = weight.detach().requires_grad_(true);
  return torch::autograd::grad({embedding(leaf, tokens)}, {leaf}, {incoming})[0];
}

std::vector<at::DeviceType> devices() {
  if (at::hasCUDA()) return {at::kCPU, at::kCUDA};
  return {at::kCPU};
}

// 4,096 uses of one row: summed in bf16 they stop growing at 256 times the first.
TEST(Embedding, FrequentTokensKeepTheirGradient) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {1, 33, 3072, 3073, 4096}) {
      const auto weight = at::zeros({5, 8}, dtype);
      const auto tokens = at::zeros({1, count}, at::kLong).fill_(3);
      const auto incoming = at::zeros({1, count, 8}, dtype).fill_(0.0009765625);  // 2^-10
      for (const auto device : devices()) {
        const auto gradient =
            gradient_of(weight.to(device), tokens.to(device), incoming.to(device)).to(at::kCPU);
        EXPECT_EQ(gradient.scalar_type(), dtype);
        EXPECT_TRUE(at::equal(gradient[3], at::zeros({8}).fill_(0.0009765625 * count).to(dtype)))
            << count;
        EXPECT_EQ(gradient.count_nonzero().item<int64_t>(), 8);
      }
    }
  }
}

TEST(Embedding, SumsAreThoseOfFloat32RoundedOnce) {
  const auto tokens = at::randint(0, 7, {3, 50}, at::kLong);
  const auto weight = at::randn({9, 4}).to(at::kBFloat16);
  const auto incoming = at::randn({3, 50, 4}).to(at::kBFloat16);
  const auto wide = gradient_of(weight.to(at::kFloat), tokens, incoming.to(at::kFloat));
  EXPECT_TRUE(at::equal(gradient_of(weight, tokens, incoming), wide.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(embedding(weight, tokens), weight.index({tokens})));
}

}  // namespace
}  // namespace skein::ops
