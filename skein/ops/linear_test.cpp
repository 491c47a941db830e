// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
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

// Layers with and without a low-rank part, one of them with dropout, against the plain formula.
TEST(Linears, LowRankPartsAddTheirProduct) {
  const auto leaf = [](at::IntArrayRef shape) {
    return at::randn(shape, at::kDouble).set_requires_grad(true);
  };
  const auto x = leaf({2, 3, 8}), first = leaf({5, 8}), second = leaf({8, 4}), bias = leaf({4});
  const auto third = leaf({6, 8});
  const std::vector<at::Tensor> a{leaf({2, 8}), leaf({3, 8}), leaf({2, 8})};
  const std::vector<at::Tensor> b{leaf({5, 2}), leaf({4, 3}), leaf({6, 2})};
  const Dropout dropout{.probability = 0.4, .stream = 3, .documents = at::arange(2)};
  const auto found = linears(x, {{first, {}, LowRank{a[0], b[0], 0.5}},
                                 {second.t(), bias, LowRank{a[1], b[1], 2}},
                                 {third, {}, LowRank{a[2], b[2], 3, dropout}},
                                 {third, {}}});
  const auto low = [&](size_t i, const at::Tensor& input) {
    return input.matmul(a[i].t()).matmul(b[i].t());
  };
  const auto dropped = ops::dropout(x, dropout);
  const std::vector<at::Tensor> expected{
      x.matmul(first.t()) + low(0, x) * 0.5, x.matmul(second) + bias + low(1, x) * 2,
      x.matmul(third.t()) + low(2, dropped) * 3, x.matmul(third.t())};
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(found[i].allclose(expected[i], 1e-12, 1e-12)) << i;
  const auto gradients = [&](const std::vector<at::Tensor>& y) {
    return torch::autograd::grad(
        {y[0].pow(2).sum() + y[1].pow(3).sum() + y[2].pow(2).sum() + y[3].sum()},
        {x, first, second, bias, third, a[0], a[1], a[2], b[0], b[1], b[2]});
  };
  const auto got = gradients(found), wanted = gradients(expected);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].allclose(wanted[i], 1e-10, 1e-10)) << i;
  }
}

// fp32 adapters beside 16-bit weights: their gradients are not rounded.
TEST(Linears, WideLowRankPartsHaveWideGradients) {
  const auto x = at::randn({1, 64, 32}).to(at::kBFloat16), weight = at::randn({16, 32});
  const auto a = at::randn({4, 32}).set_requires_grad(true);
  const auto b = at::randn({16, 4}).set_requires_grad(true);
  const auto y = linears(x, {{weight.to(at::kBFloat16), {}, LowRank{a, b, 0.5}}})[0];
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const auto got = torch::autograd::grad({y.sum()}, {a, b});
  const auto wide = x.to(at::kFloat);
  const auto expected = (wide.matmul(weight.t()) + wide.matmul(a.t()).matmul(b.t()) * 0.5).sum();
  const auto wanted = torch::autograd::grad({expected}, {a, b});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kFloat);
    EXPECT_LT(((got[i] - wanted[i]).norm() / wanted[i].norm()).item<double>(), 1e-2);
    EXPECT_FALSE(got[i].equal(got[i].to(at::kBFloat16).to(at::kFloat)));
  }
}

}  // namespace
}  // namespace skein::ops
