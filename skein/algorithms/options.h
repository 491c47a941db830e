// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which algorithm does a run train with, and what does it want to know?

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "skein/algorithms/loss_options.h"
#include "skein/config/run_config.h"

namespace skein::algorithms {

struct PretrainOptions {
  // Share of every target that is spread over the vocabulary, as transformers' LabelSmoother does
  // it: in evaluations too.
  double label_smoothing = 0;
};

struct RewardOptions {
  double centring = 0;  // keeps the sum of a pair's scores near zero; 0: does not
};

struct PreferenceOptions {
  // Losses of pairs and what each counts; several are added up.
  std::vector<config::PreferenceLoss> losses{config::PreferenceLoss::kSigmoid};
  std::vector<double> weights{1};
  LossOptions loss{};
  double rpo_alpha = 0;     // of the mean -log p of the chosen tokens
  double chosen_alpha = 0;  // of the mean over pairs of the chosen answer's -log p / n
  // Of tokens beyond the shorter answer's length, where a loss compares answers.
  std::optional<double> ld_alpha{};
  bool has_reference = true;  // some of the losses compare with one
};

struct FeedbackOptions {
  bool with_kl = true;  // kto; else apo_zero_unpaired
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  double chosen_alpha = 0;  // of the mean over desirable answers of -log p / n
};

// Formulas: policy_losses.h.
struct PolicyGradientOptions {
  config::PolicyLoss loss = config::PolicyLoss::kDapo;
  config::RatioLevel level = config::RatioLevel::kToken;
  double epsilon = 0.2, epsilon_high = 0.2;  // how far a ratio may leave 1: below, and above
  std::optional<double> delta{};             // the largest ratio that is not clipped
  std::optional<double> dual_clip{};         // the largest ratio where an advantage is negative
  double beta = 0;                           // of the KL to the reference
  config::KlEstimator kl = config::KlEstimator::kK3;
  config::RolloutCorrection correction = config::RolloutCorrection::kNone;
  double correction_cap = 3;
  double temperature = 1;             // at which completions are sampled
  int64_t max_completion_length = 0;  // tokens; dr_grpo divides by it
};

// PPO's critic; formula: critic.h.
struct CriticOptions {
  double clip_range = 0.2;  // how far a value may leave what it was; 0: wherever it likes
  double coefficient = 1;   // of the loss
};

using Options = std::variant<PretrainOptions, RewardOptions, PreferenceOptions, FeedbackOptions,
                             PolicyGradientOptions, CriticOptions>;

// The one place that knows which stage is which algorithm; of ppo the policy's.
Options options_of(const config::RunConfig& config);
// Of ppo's critic.
CriticOptions critic_options_of(const config::RunConfig& config);

}  // namespace skein::algorithms
