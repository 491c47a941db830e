// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/reward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_sigmoid.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "skein/algorithms/test_answers.h"

namespace skein::algorithms {
namespace {

plan::HfConfig scored(const std::string& family) {
  auto config = model::tiny_config(family);
  config.architecture = config.architecture->scored();
  return config;
}

// Each answer alone: what its last token's state gives.
std::vector<at::Tensor> scores_one_by_one(const model::Model& model, const TestAnswers& given) {
  std::vector<at::Tensor> scores;
  tensor::PlainUnits units;
  for (size_t d = 0; d < given.lengths.size(); ++d) {
    const auto hidden = model.forward(given.alone(d), {.training = false}, units);
    scores.push_back(
        (hidden.select(1, given.lengths[d] - 1) * *model.table().find("score.weight")->slot).sum());
  }
  return scores;
}

TEST(Reward, IsItsFormula) {
  TestAnswers pairs;
  pairs.answers->margins = {0.5, 0, -1.25};
  for (const auto& family : {model::kTinyLlama, model::kTinyGpt, model::kTinyGemma2}) {
    const auto model = model::tiny_model(scored(family));
    const Reward reward(*model, {.centring = 0.3});
    std::vector<at::Tensor> leaves;
    for (const auto& parameter : model->table().parameters) leaves.push_back(*parameter.slot);
    const auto s = scores_one_by_one(*model, pairs);
    const auto loss_of = [](const at::Tensor& a, const at::Tensor& b, double margin) {
      return -at::log_sigmoid(a - b - margin) + 0.3 * (a + b).square();
    };
    const auto expected =
        2 * (loss_of(s[0], s[1], 0.5) + loss_of(s[2], s[3], 0) + loss_of(s[4], s[5], -1.25));
    const auto wanted = torch::autograd::grad({expected}, leaves);
    for (const auto* host : {&pairs.run, &pairs.rows}) {
      tensor::PlainUnits units;
      const auto part = reward.loss_sum(tensor::to_device(*host, at::kCPU),
                                        {.key = {.training = false}, .weight = 2}, units);
      EXPECT_TRUE(at::allclose(part.loss, expected, 1e-10));
      const auto found = torch::autograd::grad({part.loss}, leaves);
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-9, 1e-12)) << i;
      }
      MetricSums sums(reward.metrics());
      sums.add(part.metrics);
      const auto numbers = sums.numbers(sums.share(0, 1), 1);
      const auto value = [&](size_t i) { return s[i].item<double>(); };
      double right = 0, lead = 0, sum = 0, least = value(0), most = value(0);
      for (size_t i = 0; i < 6; i += 2) {
        right += value(i) > value(i + 1);
        lead += value(i) - value(i + 1);
      }
      for (size_t i = 0; i < 6; ++i) {
        sum += value(i);
        least = std::min(least, value(i));
        most = std::max(most, value(i));
      }
      ASSERT_EQ(numbers.size(), 5U);
      const double expected_numbers[] = {right / 3, lead / 3, sum / 6, least, most};
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_NEAR(numbers[i].second, expected_numbers[i], 1e-12) << numbers[i].first;
      }
    }
  }
}

// The rank runs its backward all the same.
TEST(Reward, ABatchWithoutPairsGivesZero) {
  const auto model = model::tiny_model(scored(model::kTinyLlama));
  const Reward reward(*model, {});
  tensor::PlainUnits units;
  const auto part = reward.loss_sum(without_answers(), {}, units);
  EXPECT_EQ(part.loss.item<double>(), 0);
  const auto gradient =
      torch::autograd::grad({part.loss}, {*model->table().find("score.weight")->slot});
  EXPECT_EQ(gradient[0].abs().sum().item<double>(), 0);
  MetricSums sums(reward.metrics());
  sums.add(part.metrics);
  EXPECT_TRUE(sums.numbers(sums.share(0, 1), 1).empty());
}

}  // namespace
}  // namespace skein::algorithms
