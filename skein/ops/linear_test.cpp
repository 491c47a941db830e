// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace skein::ops {
namespace {

TEST(Linears, EachLayerIsItsProductAndItsBias) {
  const auto leaf = [](at::IntArrayRef shape) {
    return at::randn(shape, at::kDouble).set_requires_grad(true);
  };
  const auto x = leaf({2, 3, 8}), whole = leaf({5, 8}), transposed = leaf({8, 4}), bias = leaf({4});
  const auto found = linears(x, {{whole, {}}, {transposed.t(), bias}});
  const std::vector<at::Tensor> expected{x.matmul(whole.t()), x.matmul(transposed) + bias};
  ASSERT_EQ(found.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(found[i].allclose(expected[i], 1e-12, 1e-12));
  const auto gradients = [&](const std::vector<at::Tensor>& y) {
    return torch::autograd::grad({y[0].pow(2).sum() + y[1].pow(3).sum()},
                                 {x, whole, transposed, bias});
  };
  const auto got = gradients(found), wanted = gradients(expected);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].allclose(wanted[i], 1e-10, 1e-10));
}

}  // namespace
}  // namespace skein::ops
