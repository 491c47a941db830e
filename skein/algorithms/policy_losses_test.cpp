// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/policy_losses.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "skein/algorithms/test_episodes.h"

namespace skein::algorithms {
namespace {

using config::KlEstimator;
using config::PolicyLoss;
using config::RatioLevel;
using config::RolloutCorrection;

std::vector<double> doubles_of(const at::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

// A value and its derivative.
struct Slope {
  double value = 0, slope = 0;
};

// By its definition: the loss of a ratio and its derivative by log ρ.
Slope clipped(double ratio, double advantage, const PolicyGradientOptions& options) {
  const double low = 1 - options.epsilon, high = 1 + options.epsilon_high;
  const double bound = options.delta.value_or(std::numeric_limits<double>::infinity());
  const double free = std::min(ratio, bound) * advantage;
  const double held = std::clamp(ratio, low, high) * advantage;
  const bool is_free = free <= held;
  const bool moves = is_free ? ratio < bound : ratio > low && ratio < high;
  Slope loss{-std::min(free, held), moves ? -ratio * advantage : 0};
  if (options.dual_clip && advantage < 0 && loss.value > -*options.dual_clip * advantage) {
    loss = {-*options.dual_clip * advantage, 0};
  }
  return loss;
}

Slope divergence(double r, KlEstimator estimator) {
  switch (estimator) {
    case KlEstimator::kK1:
      return {r, 1};
    case KlEstimator::kK2:
      return {r * r / 2, r};
    case KlEstimator::kK3:
      return {std::exp(-r) - 1 + r, 1 - std::exp(-r)};
  }
  return {};
}

struct Expected {
  double loss = 0;
  std::vector<double> gradient = std::vector<double>(TestEpisodes::kTargets);
};

// Completion by completion, token by token, with derivatives by hand.
Expected expected_of(const at::Tensor& log_probs, const TestNumbers& told,
                     const PolicyGradientOptions& options) {
  const TestEpisodes given;
  const auto p = doubles_of(log_probs), old = doubles_of(told.old_log_probs),
             reference = doubles_of(told.reference_log_probs),
             rollout = doubles_of(told.rollout_log_probs), advantages = doubles_of(told.advantages);
  Expected expected;
  size_t first = 0;
  for (size_t e = 0; e < given.lengths.size(); ++e) {
    const auto length = static_cast<size_t>(given.lengths[e]);
    const auto n = static_cast<double>(length);
    double sum = 0, mean_advantage = 0, whole_share = 0;
    std::vector<double> shares(length);
    for (size_t i = 0; i < length; ++i) {
      const size_t t = first + i;
      double correction = std::exp(old[t] - rollout[t]);
      if (options.correction == RolloutCorrection::kNone) correction = 1;
      if (options.correction == RolloutCorrection::kTruncate) {
        correction = std::min(correction, options.correction_cap);
      } else if (correction > options.correction_cap) {
        correction = 0;
      }
      const double share = given.weights[e] * (options.loss == PolicyLoss::kGrpo ? 1 / n : 1);
      shares[i] = share * correction;
      sum += p[t] - old[t];
      mean_advantage += advantages[t] / n;
      whole_share += shares[i];
      const auto kl = divergence(p[t] - reference[t], options.kl);
      expected.loss += options.beta * share * kl.value;
      expected.gradient[t] += options.beta * share * kl.slope;
    }
    const bool whole = options.level != RatioLevel::kToken;
    const double chain = options.level == RatioLevel::kSequence ? 1 / n : 1;
    for (size_t i = 0; i < length; ++i) {
      const size_t t = first + i;
      const double ratio = std::exp(whole ? sum * chain : p[t] - old[t]);
      if (options.loss == PolicyLoss::kCispo) {
        const double constant = std::min(ratio, options.epsilon_high) * advantages[t] * shares[i];
        expected.loss -= constant * p[t];
        expected.gradient[t] -= constant;
        continue;
      }
      const auto loss = clipped(ratio, whole ? mean_advantage : advantages[t], options);
      if (!whole) {
        expected.loss += loss.value * shares[i];
        expected.gradient[t] += loss.slope * shares[i];
      } else {
        if (i == 0) expected.loss += loss.value * whole_share;
        expected.gradient[t] += loss.slope * chain * whole_share;
      }
    }
    first += length;
  }
  return expected;
}

at::Tensor some_log_probs() {
  at::manual_seed(1);
  return (at::randn({TestEpisodes::kTargets}, at::kDouble) - 3).set_requires_grad(true);
}

struct PolicyCase {
  const char* name;
  PolicyGradientOptions options;
};

const std::vector<PolicyCase> kPolicyCases{
    {"dapo", {}},
    {"grpo", {.loss = PolicyLoss::kGrpo, .epsilon = 0.1, .epsilon_high = 0.3}},
    {"bnpo", {.loss = PolicyLoss::kBnpo, .delta = 1.25}},
    {"dr_grpo", {.loss = PolicyLoss::kDrGrpo, .max_completion_length = 6}},
    {"ppo", {.loss = PolicyLoss::kPpo, .dual_clip = 1.3}},
    {"sum", {.loss = PolicyLoss::kSequenceSum}},
    {"cispo", {.loss = PolicyLoss::kCispo, .epsilon_high = 1.2}},
    {"k1", {.loss = PolicyLoss::kGrpo, .beta = 0.3, .kl = KlEstimator::kK1}},
    {"k2", {.beta = 0.3, .kl = KlEstimator::kK2}},
    {"k3", {.loss = PolicyLoss::kGrpo, .beta = 0.3}},
    {"gspo", {.loss = PolicyLoss::kGrpo, .level = RatioLevel::kSequence, .beta = 0.1}},
    {"gspo, tokens", {.level = RatioLevel::kSequence, .epsilon = 0.05, .epsilon_high = 0.05}},
    {"cispo of sequences",
     {.loss = PolicyLoss::kCispo, .level = RatioLevel::kSequence, .epsilon_high = 1.1}},
    {"rloo", {.loss = PolicyLoss::kGrpo, .level = RatioLevel::kSequenceSum}},
    {"truncate", {.correction = RolloutCorrection::kTruncate, .correction_cap = 1.1}},
    {"mask", {.beta = 0.2, .correction = RolloutCorrection::kMask, .correction_cap = 1.1}},
    {"mask, gspo",
     {.loss = PolicyLoss::kGrpo,
      .level = RatioLevel::kSequence,
      .correction = RolloutCorrection::kMask,
      .correction_cap = 1.1}}};

TEST(PolicyLoss, IsItsFormula) {
  const TestEpisodes given;
  const auto log_probs = some_log_probs();
  const TestNumbers told(log_probs);
  for (const auto& [name, options] : kPolicyCases) {
    const auto expected = expected_of(log_probs, told, options);
    for (const bool as_rows : {false, true}) {
      const auto batch = told.told(given, kAll, as_rows);
      const auto found = policy_loss_sum(log_probs, {}, *batch.episodes, options);
      EXPECT_NEAR(found.loss.item<double>(), expected.loss, 1e-10) << name;
      const auto gradient = doubles_of(torch::autograd::grad({found.loss}, {log_probs})[0]);
      for (size_t t = 0; t < gradient.size(); ++t) {
        EXPECT_NEAR(gradient[t], expected.gradient[t], 1e-10) << name << " " << t;
      }
    }
  }
}

TEST(PolicyLoss, IsTheSumOfItsMicroBatches) {
  const TestEpisodes given;
  const auto log_probs = some_log_probs();
  const TestNumbers told(log_probs);
  at::manual_seed(8);
  const auto entropy = at::randn({TestEpisodes::kTargets}, at::kDouble);
  for (const auto& [name, options] : kPolicyCases) {
    const auto metrics = policy_metrics(options);
    const auto part_of = [&](const std::vector<size_t>& which) {
      const auto batch = told.told(given, which);
      return policy_loss_sum(given.part(log_probs, which), given.part(entropy, which),
                             *batch.episodes, options);
    };
    const auto whole = part_of(kAll);
    const auto numbers = told_numbers(metrics, {whole.metrics});
    EXPECT_EQ(numbers.size(), metrics.size()) << name;
    const std::vector<std::vector<std::vector<size_t>>> splits{
        {{0, 1}, {2, 3, 4}}, {{3}, {0, 2}, {1, 4}}, {{0}, {1}, {2}, {3}, {4}}};
    for (const auto& split : splits) {
      double loss = 0;
      std::vector<MetricValues> parts;
      for (const auto& which : split) {
        const auto part = part_of(which);
        loss += part.loss.item<double>();
        parts.push_back(part.metrics);
      }
      EXPECT_NEAR(loss, whole.loss.item<double>(), 1e-12) << name;
      for (const auto& [metric, value] : told_numbers(metrics, parts)) {
        EXPECT_NEAR(value, numbers.at(metric), 1e-12) << name << " " << metric;
      }
    }
  }
}

// Of the four that count: 12 tokens.
TEST(PolicyLoss, TellsWhatTrlTells) {
  const TestEpisodes given;
  const auto log_probs = some_log_probs();
  const TestNumbers told(log_probs);
  at::manual_seed(8);
  const auto entropies = at::randn({TestEpisodes::kTargets}, at::kDouble);
  const PolicyGradientOptions options{.correction = RolloutCorrection::kTruncate,
                                      .correction_cap = 1.1};
  const auto batch = told.told(given, kAll);
  const auto numbers =
      told_numbers(policy_metrics(options),
                   {policy_loss_sum(log_probs, entropies, *batch.episodes, options).metrics});
  const auto p = doubles_of(log_probs), old = doubles_of(told.old_log_probs),
             reference = doubles_of(told.reference_log_probs), entropy = doubles_of(entropies),
             rollout = doubles_of(told.rollout_log_probs), a = doubles_of(told.advantages);
  std::map<std::string, double> wanted{{"clip_ratio/low_min", 1},
                                       {"sampling/importance_sampling_ratio/min", 9}};
  size_t t = 0;
  for (size_t e = 0; e < 5; ++e) {
    double low = 0, high = 0;
    const auto n = static_cast<double>(given.lengths[e]);
    for (int64_t i = 0; i < given.lengths[e]; ++i, ++t) {
      if (given.weights[e] == 0) continue;
      const double ratio = std::exp(p[t] - old[t]), r = p[t] - reference[t];
      const double weight = std::min(1.1, std::exp(old[t] - rollout[t]));
      const double gap = std::abs(old[t] - rollout[t]);
      low += ratio < 0.8 && a[t] < 0;
      high += ratio > 1.2 && a[t] > 0;
      wanted["kl"] += (std::exp(-r) - 1 + r) / 12;
      wanted["entropy"] += entropy[t] / 12;
      wanted["approx_kl"] += std::pow(p[t] - old[t], 2) / 24;
      wanted["ratio"] += ratio / 12;
      wanted["sampling/sampling_logp_difference/mean"] += gap / 12;
      wanted["sampling/importance_sampling_ratio/mean"] += weight / 12;
      auto& most = wanted["sampling/sampling_logp_difference/max"];
      most = std::max(most, gap);
      auto& least_weight = wanted["sampling/importance_sampling_ratio/min"];
      least_weight = std::min(least_weight, weight);
      auto& most_weight = wanted["sampling/importance_sampling_ratio/max"];
      most_weight = std::max(most_weight, weight);
    }
    wanted["clip_ratio/low_mean"] += low / 12;
    wanted["clip_ratio/high_mean"] += high / 12;
    wanted["clip_ratio/region_mean"] += (low + high) / 12;
    if (given.weights[e] == 0) continue;
    wanted["clip_ratio/low_min"] = std::min(wanted["clip_ratio/low_min"], low / n);
    wanted["clip_ratio/high_max"] = std::max(wanted["clip_ratio/high_max"], high / n);
  }
  EXPECT_GT(wanted["clip_ratio/low_mean"], 0);
  EXPECT_GT(wanted["clip_ratio/high_mean"], 0);
  ASSERT_EQ(numbers.size(), wanted.size());
  for (const auto& [name, value] : wanted) EXPECT_NEAR(numbers.at(name), value, 1e-12) << name;
}

// What nobody told is not told.
TEST(PolicyLoss, LeavesOutWhatWasNotAsked) {
  const TestEpisodes given;
  const auto log_probs = some_log_probs();
  const TestNumbers told(log_probs);
  auto episodes = *told.told(given, kAll).episodes;
  for (auto* one :
       {&episodes.old_log_probs, &episodes.reference_log_probs, &episodes.rollout_log_probs}) {
    *one = at::Tensor();
  }
  for (const auto level : {RatioLevel::kToken, RatioLevel::kSequence, RatioLevel::kSequenceSum}) {
    const PolicyGradientOptions options{.level = level};
    const auto found = policy_loss_sum(log_probs, {}, episodes, options);
    const auto numbers = told_numbers(policy_metrics(options), {found.metrics});
    EXPECT_EQ(numbers.size(), 7U);
    EXPECT_EQ(numbers.at("ratio"), 1);
    EXPECT_EQ(numbers.at("clip_ratio/region_mean"), 0);
    EXPECT_FALSE(numbers.contains("kl"));
  }
  // The policy gradient itself: A at each token that counts.
  const auto found = policy_loss_sum(log_probs, {}, episodes, {});
  const auto gradient = doubles_of(torch::autograd::grad({found.loss}, {log_probs})[0]);
  const auto advantages = doubles_of(told.advantages);
  for (size_t t = 0; t < gradient.size(); ++t) {
    EXPECT_EQ(gradient[t], t == 8 ? 0 : -advantages[t]) << t;
  }
}

TEST(PolicyLoss, StaysFiniteFarFromWhatItWas) {
  const TestEpisodes given;
  const auto log_probs = some_log_probs();
  TestNumbers told(log_probs);
  told.old_log_probs = at::full_like(told.old_log_probs, -900);
  told.advantages = at::full_like(told.advantages, -1);
  const auto batch = told.told(given, kAll);
  const auto found = policy_loss_sum(log_probs, {}, *batch.episodes, {});
  EXPECT_NEAR(found.loss.item<double>(), 12 * std::exp(20), 1);
  EXPECT_EQ(torch::autograd::grad({found.loss}, {log_probs})[0].abs().sum().item<double>(), 0);
}

TEST(PolicyLoss, IsDividedByOneNumberOfTheStep) {
  const tensor::Counts counts{.targets = 30, .samples = 7};
  const auto divisor = [&](PolicyLoss loss) {
    return policy_normaliser(counts, {.loss = loss, .max_completion_length = 11});
  };
  using enum PolicyLoss;
  for (const auto loss : {kBnpo, kDapo, kCispo, kPpo}) EXPECT_EQ(divisor(loss), 30);
  for (const auto loss : {kGrpo, kSequenceSum}) EXPECT_EQ(divisor(loss), 7);
  EXPECT_EQ(divisor(kDrGrpo), 77);
  EXPECT_EQ(policy_normaliser({.samples = 7}, {}), 1);
}

}  // namespace
}  // namespace skein::algorithms
