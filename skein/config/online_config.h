// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What can the stages be told whose data is made while training: ppo, grpo, rloo?
//
// An absent value is the stage's own: what it is then, and what follows from several keys together,
// says plan/online.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/syntax/choices.h"

namespace skein::config {

// How the model answers prompts.
struct RolloutConfig {
  std::optional<int64_t> num_generations;
  int64_t max_prompt_length = 512;
  LongPrompts long_prompts = LongPrompts::kDrop;
  int64_t max_completion_length = 512;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  int64_t rollout_cache_size = 0;
  int64_t rollout_max_rows = 0;
  bool ds3_gather_for_generation = true;
  RolloutCorrection rollout_correction = RolloutCorrection::kNone;
  double rollout_correction_cap = 3;

  bool operator==(const RolloutConfig&) const = default;
};

// What gives answers their rewards.
struct RewardConfig {
  std::vector<std::string> reward_funcs;
  std::vector<double> reward_weights;  // empty: all 1
  std::string reward_model;
  bool reward_retokenize = false;
  std::vector<std::string> reward_program;
  int64_t reward_timeout = 300;
  int64_t max_turns = 1;
  bool skip_unscored = false;

  bool operator==(const RewardConfig&) const = default;
};

// How answers and their rewards become updates.
struct PolicyConfig {
  std::optional<int64_t> num_iterations;
  std::optional<int64_t> num_mini_batches, steps_per_generation, generation_batch_size;
  std::optional<AdvantageEstimator> advantage_estimator;
  ScaleRewards scale_rewards = ScaleRewards::kGroup;
  bool filter_groups = false;
  std::optional<PolicyLoss> policy_loss;
  RatioLevel importance_sampling_level = RatioLevel::kToken;
  double epsilon = 0.2;
  std::optional<double> epsilon_high;
  std::optional<double> delta;
  std::optional<double> clip_ratio_c;
  bool mask_truncated_completions = false;
  std::optional<double> kl_coef;
  std::optional<KlPlace> kl_in;
  std::optional<KlEstimator> kl_estimator;
  std::optional<double> kl_target;
  int64_t kl_horizon = 10000;

  bool operator==(const PolicyConfig&) const = default;
};

// What is asked of the rewards of tokens and of a critic.
struct PpoConfig {
  double gamma = 1;
  double lam = 0.95;
  double cliprange_value = 0.2;
  double vf_coef = 0.1;
  bool whiten_rewards = false;
  bool whiten_advantages = true;
  bool ppo_score_norm = false;
  double reward_clip = 0;
  double missing_eos_penalty = 0;
  std::string critic_model;
  std::optional<double> critic_learning_rate;
  int64_t critic_warmup = 0;

  bool operator==(const PpoConfig&) const = default;
};

}  // namespace skein::config
