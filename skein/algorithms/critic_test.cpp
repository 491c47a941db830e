// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/critic.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "skein/algorithms/episodes.h"
#include "skein/algorithms/test_episodes.h"

namespace skein::algorithms {
namespace {

plan::HfConfig scoring(const std::string& family) {
  auto config = model::tiny_config(family);
  config.architecture = config.architecture->scored();
  return config;
}

TEST(Critic, LossIsItsFormula) {
  const TestEpisodes given;
  at::manual_seed(2);
  const auto values = at::randn({TestEpisodes::kTargets}, at::kDouble).set_requires_grad(true);
  const TestNumbers told(values);
  const auto batch = told.told(given, kAll);
  const auto at_of = [](const at::Tensor& tensor, int64_t t) { return tensor[t].item<double>(); };
  for (const double range : {0.3, 0.0}) {
    const auto part =
        value_loss_sum(values, *batch.episodes, {.clip_range = range, .coefficient = 0.5});
    const auto gradient = torch::autograd::grad({part.loss}, {values})[0];
    double loss = 0, clipped = 0, mean = 0, returns = 0;
    for (int64_t t = 0; t < TestEpisodes::kTargets; ++t) {
      const double v = at_of(values, t), target = at_of(told.returns, t);
      const double old = at_of(told.old_values, t);
      const double near = range > 0 ? std::clamp(v, old - range, old + range) : v;
      const bool by_clip = std::pow(near - target, 2) > std::pow(v - target, 2);
      if (t == 8) {  // masked out
        EXPECT_EQ(at_of(gradient, t), 0);
        continue;
      }
      loss += std::max(std::pow(v - target, 2), std::pow(near - target, 2)) / 2;
      clipped += by_clip;
      mean += v;
      returns += target;
      EXPECT_NEAR(at_of(gradient, t), by_clip ? 0 : 0.5 * (v - target), 1e-10) << t;
    }
    EXPECT_EQ(clipped > 0, range > 0);
    EXPECT_NEAR(part.loss.item<double>(), 0.5 * loss, 1e-10);
    const auto model = model::tiny_model(scoring(model::kTinyLlama));
    const auto numbers = told_numbers(Critic(*model, {}).metrics(), {part.metrics});
    ASSERT_EQ(numbers.size(), 4U);
    EXPECT_NEAR(numbers.at("value/loss"), loss / 12, 1e-12);
    EXPECT_NEAR(numbers.at("value/clip_fraction"), clipped / 12, 1e-12);
    EXPECT_NEAR(numbers.at("value/mean"), mean / 12, 1e-12);
    EXPECT_NEAR(numbers.at("value/returns"), returns / 12, 1e-12);
  }
}

// The value is that of the state from which a token was predicted.
TEST(Critic, ScoresWhatStandsBeforeEachToken) {
  const TestEpisodes given;
  for (const auto& family : {model::kTinyLlama, model::kTinyGpt}) {
    const auto model = model::tiny_model(scoring(family));
    std::vector<at::Tensor> leaves, values;
    for (const auto& parameter : model->table().parameters) leaves.push_back(*parameter.slot);
    for (size_t e = 0; e < given.lengths.size(); ++e) {
      tensor::PlainUnits units;
      const auto alone = tensor::to_device(given.host({e}), at::kCPU);
      const auto hidden = model->forward(alone, kStill, units)[0];
      for (int64_t i = 0; i < given.lengths[e]; ++i) {
        const auto weight = *model->table().find("score.weight")->slot;
        values.push_back((hidden[given.prompts[e] - 1 + i] * weight).sum());
      }
    }
    const auto all = at::stack(values);
    const TestNumbers told(all);
    const CriticOptions options{.clip_range = 0.4};
    const Critic critic(*model, options);
    EXPECT_EQ(critic.normaliser({.targets = 30, .samples = 7}), 30);
    const auto expected = value_loss_sum(all, *told.told(given, kAll).episodes, options).loss;
    const auto wanted = torch::autograd::grad({3 * expected}, leaves);
    for (const bool as_rows : {false, true}) {
      tensor::PlainUnits units;
      const auto batch = told.told(given, kAll, as_rows);
      const auto looked = token_values(*model, batch, units);
      EXPECT_FALSE(looked.requires_grad());
      EXPECT_TRUE(at::allclose(looked, all, 1e-10));
      const auto part = critic.loss_sum(batch, {.key = kStill, .weight = 3}, units);
      EXPECT_NEAR(part.loss.item<double>(), 3 * expected.item<double>(), 1e-10);
      const auto found = torch::autograd::grad({part.loss}, leaves);
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-9, 1e-12)) << i;
      }
    }
  }
}

// At the first update no value has left what it was.
TEST(Critic, IsNotClippedAtFirst) {
  const TestEpisodes given;
  const auto model = model::tiny_model(scoring(model::kTinyLlama));
  const Critic critic(*model, {.clip_range = 1e-9});
  tensor::PlainUnits units;
  auto batch = tensor::to_device(given.host(kAll), at::kCPU);
  auto episodes = *batch.episodes;
  episodes.old_values = token_values(*model, batch, units);
  episodes.returns = TestNumbers(episodes.old_values).returns;
  const auto part = critic.loss_sum(tensor::with_episodes(batch, episodes), {.key = kStill}, units);
  EXPECT_EQ(told_numbers(critic.metrics(), {part.metrics}).at("value/clip_fraction"), 0);
}

TEST(Critic, ABatchWithoutCompletionsGivesZero) {
  const auto model = model::tiny_model(scoring(model::kTinyLlama));
  const Critic critic(*model, {});
  tensor::PlainUnits units;
  EXPECT_EQ(token_values(*model, without_episodes(), units).numel(), 0);
  const auto part = critic.loss_sum(without_episodes(), {.key = kStill}, units);
  EXPECT_EQ(part.loss.item<double>(), 0);
  const auto gradient =
      torch::autograd::grad({part.loss}, {*model->table().find("score.weight")->slot});
  EXPECT_EQ(gradient[0].abs().sum().item<double>(), 0);
  EXPECT_TRUE(told_numbers(critic.metrics(), {part.metrics}).empty());
}

}  // namespace
}  // namespace skein::algorithms
