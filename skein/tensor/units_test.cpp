// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/units.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace skein::tensor {
namespace {

// Two units: a root that is used twice (tied weights) and a block.
class CountingUnits final : public Units {
 public:
  CountingUnits(std::vector<Tensors> leaves, bool recompute)
      : leaves_(std::move(leaves)), gradients_(leaves_.size()), recompute_(recompute) {}

  void acquire(int, Pass) override { ++held_; }
  void release(int, Pass) override { --held_; }
  std::span<const at::Tensor> leaves(int unit) override { return leaves_[unit]; }
  bool recompute(int) const override { return recompute_; }
  void add_gradients(int unit, Tensors gradients) override {
    EXPECT_GT(held_, 0);
    auto& sums = gradients_[unit];
    sums.resize(gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      sums[i] = sums[i].defined() ? sums[i] + gradients[i] : gradients[i];
    }
  }

  std::vector<Tensors> leaves_, gradients_;
  int held_ = 0;

 private:
  bool recompute_;
};

struct Net {
  at::Tensor tied = at::randn({6, 4}).set_requires_grad(true);
  at::Tensor weight = at::randn({4, 4}).set_requires_grad(true);
  at::Tensor unused = at::randn({2}).set_requires_grad(true);

  at::Tensor loss(Units& units, const at::Tensor& x) const {
    const auto embedded =
        units.run(0, [&](const Tensors& in) { return Tensors{at::linear(in[0], tied.t())}; }, {x});
    const auto hidden = units.run(
        1, [&](const Tensors& in) { return Tensors{at::tanh(at::linear(in[0], weight)) + in[0]}; },
        embedded);
    const auto logits =
        units.run(0, [&](const Tensors& in) { return Tensors{at::linear(in[0], tied)}; }, hidden);
    return (logits[0] * logits[0]).sum();
  }
};

TEST(Units, GradientsAreThoseOfPlainAutogradBitForBit) {
  at::manual_seed(3);
  const Net net;
  const auto x = at::randn({5, 6});
  PlainUnits plain;
  const auto expected_loss = net.loss(plain, x);
  const auto expected = torch::autograd::grad({expected_loss}, {net.tied, net.weight});
  for (const bool recompute : {false, true}) {
    CountingUnits units({{net.tied}, {net.weight, net.unused}}, recompute);
    const auto loss = net.loss(units, x);
    torch::autograd::backward({loss});
    EXPECT_TRUE(loss.equal(expected_loss));
    EXPECT_TRUE(units.gradients_[0][0].equal(expected[0]));
    EXPECT_TRUE(units.gradients_[1][0].equal(expected[1]));
    EXPECT_FALSE(units.gradients_[1][1].defined());
    EXPECT_FALSE(net.tied.grad().defined());
    EXPECT_EQ(units.held_, 0);
  }
}

TEST(Units, WithoutGradNothingIsKept) {
  const Net net;
  CountingUnits units({{net.tied}, {net.weight, net.unused}}, false);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(net.loss(units, at::randn({2, 6})).requires_grad());
  EXPECT_EQ(units.held_, 0);
}

// A frozen unit still passes gradients on to its inputs.
TEST(Units, FrozenUnitPassesGradientsThrough) {
  Net net;
  net.weight = net.weight.detach();
  CountingUnits units({{net.tied}, {}}, true);
  torch::autograd::backward({net.loss(units, at::randn({2, 6}))});
  EXPECT_TRUE(units.gradients_[0][0].defined());
}

}  // namespace
}  // namespace skein::tensor
