// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/options.h"

#include "skein/config/online_values.h"
#include "skein/core/error.h"
#include "skein/plan/preferences.h"

namespace skein::algorithms {
namespace {

PreferenceOptions preference_options(const config::RunConfig& config) {
  const auto& keys = config.preference;
  PreferenceOptions options{.losses = plan::losses_of(config),
                            .weights = plan::loss_weights_of(config),
                            .loss = {.beta = keys.pref_beta,
                                     .smoothing = config.finetune.label_smoothing_factor,
                                     .simpo_gamma = keys.simpo_gamma,
                                     .discopop_tau = keys.discopop_tau,
                                     .divergence = keys.f_divergence_type,
                                     .alpha = keys.f_alpha_divergence_coef},
                            .rpo_alpha = keys.rpo_alpha,
                            .chosen_alpha = keys.pref_ftx,
                            .has_reference = plan::reference_of(config) != plan::Reference::kNone};
  if (keys.ld_alpha != 1) options.ld_alpha = keys.ld_alpha;
  return options;
}

FeedbackOptions feedback_options(const config::RunConfig& config) {
  const auto& keys = config.preference;
  return {.with_kl = plan::losses_of(config).front() == config::PreferenceLoss::kKto,
          .beta = keys.pref_beta,
          .desirable_weight = keys.kto_chosen_weight,
          .undesirable_weight = keys.kto_rejected_weight,
          .chosen_alpha = keys.pref_ftx};
}

PolicyGradientOptions policy_options(const config::RunConfig& config) {
  const auto& keys = config.policy;
  const bool has_kl = config::kl_place_of(config) == config::KlPlace::kLoss;
  return {.loss = config::policy_loss_of(config),
          .level = keys.importance_sampling_level,
          .epsilon = keys.epsilon,
          .epsilon_high = config::epsilon_high_of(config),
          .delta = keys.delta,
          .dual_clip = keys.clip_ratio_c,
          .beta = has_kl ? config::kl_coef_of(config) : 0,
          .kl = config::kl_estimator_of(config),
          .correction = config.rollout.rollout_correction,
          .correction_cap = config.rollout.rollout_correction_cap,
          .temperature = config.rollout.temperature,
          .max_completion_length = config.rollout.max_completion_length};
}

}  // namespace

CriticOptions critic_options_of(const config::RunConfig& config) {
  return {.clip_range = config.ppo.cliprange_value, .coefficient = config.ppo.vf_coef};
}

Options options_of(const config::RunConfig& config) {
  switch (config.stage) {
    case config::TrainingStage::kPretrain:
    case config::TrainingStage::kSft:  // the same loss: rows say what their targets are
      return PretrainOptions{.label_smoothing = config.finetune.label_smoothing_factor};
    case config::TrainingStage::kReward:
      return RewardOptions{.centring = config.preference.center_rewards_coefficient};
    case config::TrainingStage::kDpo:
      return preference_options(config);
    case config::TrainingStage::kKto:
      return feedback_options(config);
    case config::TrainingStage::kPpo:
    case config::TrainingStage::kGrpo:
    case config::TrainingStage::kRloo:
      return policy_options(config);
  }
  throw InternalError("a stage without an algorithm");
}

}  // namespace skein::algorithms
