// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/layer_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace skein::ops {
namespace {

// The definition, term by term.
at::Tensor by_definition(const at::Tensor& x, const LayerNorm& norm) {
  const auto centred = x - x.mean(-1, /*keepdim=*/true);
  const auto variance = (centred * centred).mean(-1, /*keepdim=*/true);
  return centred / (variance + norm.epsilon).sqrt() * norm.weight + norm.bias;
}

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).set_requires_grad(true);
}

TEST(LayerNorm, EqualsItsDefinitionAndSoDoItsGradients) {
  const auto x = leaf({3, 5, 24}), delta = leaf({3, 5, 24});
  const LayerNorm norm{leaf({24}), leaf({24}), 1e-5};
  const auto mix = at::randn({3, 5, 24}, at::kDouble), also = at::randn({3, 5, 24}, at::kDouble);
  const auto gradients = [&](const at::Tensor& sum, const at::Tensor& normalised) {
    return torch::autograd::grad({(normalised * mix + sum * also).sum()},
                                 {x, delta, norm.weight, norm.bias});
  };
  const auto [sum, normalised] = add_layer_norm(x, delta, norm);
  const auto expected = by_definition(x + delta, norm);
  EXPECT_TRUE(sum.equal(x + delta));
  EXPECT_TRUE(normalised.allclose(expected, 1e-12, 1e-12));
  const auto found = gradients(sum, normalised), wanted = gradients(x + delta, expected);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].allclose(wanted[i], 1e-10, 1e-10)) << i;
  }
}

TEST(LayerNorm, NothingAddedLeavesTheStreamAsItIs) {
  const auto x = at::randn({4, 16});
  const LayerNorm norm{at::randn({16}), at::randn({16}), 1e-5};
  const auto [sum, normalised] = add_layer_norm(x, {}, norm);
  EXPECT_TRUE(sum.equal(x));
  EXPECT_TRUE(normalised.equal(layer_norm(x, norm)));
}

}  // namespace
}  // namespace skein::ops
