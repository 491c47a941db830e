// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear_cross_entropy.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/tensor/batch.h"

namespace skein::ops {
namespace {

constexpr int64_t kRows = 11, kChannels = 6, kVocabulary = 13;

struct HeadCase {
  at::Tensor hidden, weight, targets, weights;

  explicit HeadCase(at::ScalarType dtype) {
    at::manual_seed(5);
    hidden = at::randn({kRows, kChannels}, at::kDouble).to(dtype).set_requires_grad(true);
    weight = at::randn({kVocabulary, kChannels}, at::kDouble).to(dtype).set_requires_grad(true);
    targets = at::randint(0, kVocabulary, {kRows}, at::kLong);
    targets.index_put_({at::arange(0, kRows, 4)}, at::zeros_like(targets[0]) + tensor::kIgnore);
    weights = at::rand({kRows}, at::kDouble);
  }

  // log p of every target from all logits at once, 0 where ignored.
  at::Tensor plain_log_probs() const {
    const auto logits = hidden.matmul(weight.t());
    const auto valid = targets.ne(tensor::kIgnore);
    const auto index = targets.clamp_min(0).unsqueeze(1);
    return at::log_softmax(logits, 1).gather(1, index).squeeze(1) * valid;
  }

  std::vector<at::Tensor> gradients(const at::Tensor& loss) const {
    return torch::autograd::grad({loss}, {hidden, weight});
  }
};

int64_t bytes_of_rows(int64_t rows) { return rows * kVocabulary * 8; }

TEST(LinearCrossEntropy, EqualsThePlainFormulaForEveryChunkSize) {
  const HeadCase c(at::kDouble);
  const auto expected = -(c.plain_log_probs() * c.weights).sum();
  const auto wanted = c.gradients(expected * 3);
  for (const int64_t rows : {1, 3, 4, 11, 100}) {
    const auto loss = linear_cross_entropy_sum(c.hidden, c.weight, c.targets, c.weights,
                                               {.logits_bytes = bytes_of_rows(rows)});
    EXPECT_EQ(loss.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::allclose(loss, expected, 1e-12)) << rows;
    const auto found = c.gradients(loss * 3);
    EXPECT_TRUE(at::allclose(found[0], wanted[0], 1e-11, 1e-13)) << rows;
    EXPECT_TRUE(at::allclose(found[1], wanted[1], 1e-11, 1e-13)) << rows;
  }
}

TEST(LinearCrossEntropy, WithoutWeightsEveryTargetCountsOnce) {
  const HeadCase c(at::kDouble);
  const auto loss = linear_cross_entropy_sum(c.hidden, c.weight, c.targets, {});
  EXPECT_TRUE(at::allclose(loss, -c.plain_log_probs().sum(), 1e-12));
}

TEST(LinearCrossEntropy, IgnoredRowsGiveExactlyZeroGradient) {
  const HeadCase c(at::kFloat);
  const auto loss = linear_cross_entropy_sum(c.hidden, c.weight, c.targets, {});
  const auto rows = c.gradients(loss)[0].index({c.targets.eq(tensor::kIgnore)});
  ASSERT_EQ(rows.size(0), 3);
  EXPECT_TRUE(at::equal(rows, at::zeros_like(rows)));
}

TEST(LinearCrossEntropy, SixteenBitGradientsStayNearTheWideOnes) {
  const HeadCase c(at::kBFloat16);
  const auto loss = linear_cross_entropy_sum(c.hidden, c.weight, c.targets, {},
                                             {.logits_bytes = bytes_of_rows(1)});
  const auto found = c.gradients(loss);
  const auto hidden = c.hidden.detach().to(at::kDouble).set_requires_grad(true);
  const auto weight = c.weight.detach().to(at::kDouble).set_requires_grad(true);
  const auto wide = linear_cross_entropy_sum(hidden, weight, c.targets, {});
  const auto wanted = torch::autograd::grad({wide}, {hidden, weight});
  EXPECT_TRUE(at::allclose(loss, wide, 1e-2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
    const auto distance = (found[i].to(at::kDouble) - wanted[i]).norm() / wanted[i].norm();
    EXPECT_LT(distance.item<double>(), 2e-2) << i;
  }
}

TEST(LinearCrossEntropy, FrozenWeightGetsNoGradient) {
  const HeadCase c(at::kDouble);
  const auto expected = c.gradients(linear_cross_entropy_sum(c.hidden, c.weight, c.targets, {}))[0];
  const auto loss = linear_cross_entropy_sum(c.hidden, c.weight.detach(), c.targets, {});
  EXPECT_TRUE(at::equal(torch::autograd::grad({loss}, {c.hidden})[0], expected));
}

TEST(LinearCrossEntropy, KeepsNoGraphWithoutGradMode) {
  const HeadCase c(at::kDouble);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear_cross_entropy_sum(c.hidden, c.weight, c.targets, {}).requires_grad());
}

TEST(LinearCrossEntropy, RunsOnTheMetaDevice) {
  const auto meta = at::TensorOptions(at::kMeta);
  const auto loss = linear_cross_entropy_sum(at::empty({5, 4}, meta), at::empty({7, 4}, meta),
                                             at::empty({5}, meta.dtype(at::kLong)), {});
  EXPECT_EQ(loss.dim(), 0);
}

TEST(LinearLogProbs, EqualsThePlainFormulaForEveryChunkSize) {
  const HeadCase c(at::kDouble);
  const auto expected = c.plain_log_probs();
  const auto wanted = c.gradients((expected * c.weights).sum());
  for (const int64_t rows : {1, 4, 100}) {
    const auto found =
        linear_log_probs(c.hidden, c.weight, c.targets, {.logits_bytes = bytes_of_rows(rows)});
    EXPECT_TRUE(at::allclose(found, expected, 1e-12)) << rows;
    const auto gradients = c.gradients((found * c.weights).sum());
    EXPECT_TRUE(at::allclose(gradients[0], wanted[0], 1e-11, 1e-13)) << rows;
    EXPECT_TRUE(at::allclose(gradients[1], wanted[1], 1e-11, 1e-13)) << rows;
  }
}

}  // namespace
}  // namespace skein::ops
