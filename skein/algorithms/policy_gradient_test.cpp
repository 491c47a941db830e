// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/policy_gradient.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/algorithms/episodes.h"
#include "skein/algorithms/policy_losses.h"
#include "skein/algorithms/test_episodes.h"

namespace skein::algorithms {
namespace {

std::vector<at::Tensor> weights_of(const model::Model& model) {
  std::vector<at::Tensor> leaves;
  for (const auto& parameter : model.table().parameters) leaves.push_back(*parameter.slot);
  return leaves;
}

// log p and entropy of each target, (13): each completion alone, from all logits.
struct AloneTargets {
  at::Tensor log_probs, entropy;
};
AloneTargets targets_alone(const model::Model& model, const TestEpisodes& given,
                           double temperature) {
  std::vector<at::Tensor> log_probs, entropies;
  for (size_t e = 0; e < given.lengths.size(); ++e) {
    tensor::PlainUnits units;
    const auto batch = tensor::to_device(given.host({e}), at::kCPU);
    const auto logits = model.head_logits(model.forward(batch, kStill, units), units)[0];
    const auto all = at::log_softmax(logits / temperature, 1);
    for (int64_t t = given.prompts[e] - 1; t + 1 < given.prompts[e] + given.lengths[e]; ++t) {
      log_probs.push_back(all[t][TestEpisodes::token(e, t + 1)]);
      entropies.push_back(-(all[t].exp() * all[t]).sum());
    }
  }
  return {at::stack(log_probs), at::stack(entropies).detach()};
}

TEST(PolicyGradient, IsItsFormula) {
  const TestEpisodes given;
  for (const auto& family : {model::kTinyLlama, model::kTinyGpt, model::kTinyGemma2}) {
    const auto model = model::tiny_model(model::tiny_config(family));
    const auto leaves = weights_of(*model);
    const auto numbers = targets_alone(*model, given, 0.7);
    const TestNumbers told(numbers.log_probs);
    const PolicyGradientOptions options{
        .loss = config::PolicyLoss::kGrpo, .beta = 0.2, .temperature = 0.7};
    const PolicyGradient algorithm(*model, options);
    EXPECT_EQ(algorithm.normaliser({.targets = 30, .samples = 7}), 7);
    EXPECT_TRUE(algorithm.passes().empty());
    const auto expected = policy_loss_sum(numbers.log_probs, numbers.entropy,
                                          *told.told(given, kAll).episodes, options);
    const auto wanted = torch::autograd::grad({2 * expected.loss}, leaves);
    const auto wanted_numbers = told_numbers(algorithm.metrics(), {expected.metrics});
    for (const bool as_rows : {false, true}) {
      tensor::PlainUnits units;
      const auto batch = told.told(given, kAll, as_rows);
      const auto part = algorithm.loss_sum(batch, {.key = kStill, .weight = 2}, units);
      EXPECT_NEAR(part.loss.item<double>(), 2 * expected.loss.item<double>(), 1e-10);
      const auto found = torch::autograd::grad({part.loss}, leaves);
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-9, 1e-12)) << i;
      }
      const auto found_numbers = told_numbers(algorithm.metrics(), {part.metrics});
      for (const auto& [name, value] : wanted_numbers) {
        EXPECT_NEAR(found_numbers.at(name), value, 1e-10) << name;
      }
      EXPECT_TRUE(at::allclose(token_log_probs(*model, batch, kStill, units, 0.7),
                               numbers.log_probs, 1e-10));
    }
  }
}

// What is looked at before the first update is what the loss sees: not a bit differs.
TEST(PolicyGradient, BeginsWithRatiosOfOne) {
  const TestEpisodes given;
  for (const auto& family : model::tiny_families()) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      const auto model = model::tiny_model(model::tiny_config(family));
      for (const auto& parameter : model->table().parameters) {
        *parameter.slot = parameter.slot->detach().to(type).set_requires_grad(true);
      }
      const PolicyGradient algorithm(*model, {.epsilon = 0, .epsilon_high = 0, .temperature = 0.9});
      for (const bool as_rows : {false, true}) {
        tensor::PlainUnits units;
        auto batch = tensor::to_device(given.host(kAll, as_rows), at::kCPU);
        auto episodes = *batch.episodes;
        episodes.old_log_probs = token_log_probs(*model, batch, kStill, units, 0.9);
        EXPECT_FALSE(episodes.old_log_probs.requires_grad());
        episodes.advantages = TestNumbers(episodes.old_log_probs).advantages;
        batch = tensor::with_episodes(batch, episodes);
        const auto part = algorithm.loss_sum(batch, {.key = kStill}, units);
        const auto numbers = told_numbers(algorithm.metrics(), {part.metrics});
        EXPECT_EQ(numbers.at("ratio"), 1);
        EXPECT_EQ(numbers.at("approx_kl"), 0);
        EXPECT_EQ(numbers.at("clip_ratio/region_mean"), 0);
        const auto weights = of_targets(episodes.weights, episodes);
        EXPECT_EQ(part.loss.item<double>(), -(episodes.advantages * weights).sum().item<double>());
      }
    }
  }
}

TEST(PolicyGradient, IsTheSumOfItsMicroBatches) {
  const TestEpisodes given;
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  const auto leaves = weights_of(*model);
  const TestNumbers told(targets_alone(*model, given, 1).log_probs);
  const PolicyGradient algorithm(*model, {.loss = config::PolicyLoss::kGrpo, .beta = 0.1});
  const auto step_of = [&](const std::vector<std::vector<size_t>>& split) {
    auto loss = at::zeros({}, at::kDouble);
    for (const auto& which : split) {
      tensor::PlainUnits units;
      loss = loss + algorithm.loss_sum(told.told(given, which), {.key = kStill}, units).loss;
    }
    tensor::PlainUnits units;
    return loss + algorithm.loss_sum(without_episodes(), {.key = kStill}, units).loss;
  };
  const auto whole = step_of({kAll}), split = step_of({{4, 0}, {3}, {1, 2}});
  EXPECT_NEAR(split.item<double>(), whole.item<double>(), 1e-12);
  const auto wanted = torch::autograd::grad({whole}, leaves);
  const auto found = torch::autograd::grad({split}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-10, 1e-12)) << i;
  }
}

// The rank runs its backward all the same.
TEST(PolicyGradient, ABatchWithoutCompletionsGivesZero) {
  const auto model = model::tiny_model(model::tiny_config(model::kTinyLlama));
  for (const auto level : {config::RatioLevel::kToken, config::RatioLevel::kSequence}) {
    const PolicyGradient algorithm(
        *model, {.level = level, .beta = 0.1, .correction = config::RolloutCorrection::kTruncate});
    tensor::PlainUnits units;
    const auto batch = without_episodes();
    EXPECT_EQ(token_log_probs(*model, batch, kStill, units).numel(), 0);
    const auto part = algorithm.loss_sum(batch, {.key = kStill}, units);
    EXPECT_EQ(part.loss.item<double>(), 0);
    const auto gradient =
        torch::autograd::grad({part.loss}, {*model->table().parameters.front().slot});
    EXPECT_EQ(gradient[0].abs().sum().item<double>(), 0);
    EXPECT_TRUE(told_numbers(algorithm.metrics(), {part.metrics}).empty());
  }
}

}  // namespace
}  // namespace skein::algorithms
