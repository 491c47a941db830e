// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/online_values.h"

namespace skein::config {
namespace {

// TRL's.
constexpr int64_t kGenerationsOfGrpo = 8, kGenerationsOfRloo = 4, kIterationsOfPpo = 4;
constexpr double kKlCoef = 0.05;

bool is_ppo(const RunConfig& config) { return config.stage == TrainingStage::kPpo; }
bool is_grpo(const RunConfig& config) { return config.stage == TrainingStage::kGrpo; }

}  // namespace

int64_t generations_of(const RunConfig& config) {
  const int64_t own = is_ppo(config)    ? 1
                      : is_grpo(config) ? kGenerationsOfGrpo
                                        : kGenerationsOfRloo;
  return config.rollout.num_generations.value_or(own);
}

int64_t iterations_of(const RunConfig& config) {
  return config.policy.num_iterations.value_or(is_ppo(config) ? kIterationsOfPpo : 1);
}

AdvantageEstimator advantage_estimator_of(const RunConfig& config) {
  using enum AdvantageEstimator;
  return config.policy.advantage_estimator.value_or(is_ppo(config)    ? kGae
                                                    : is_grpo(config) ? kGroup
                                                                      : kLeaveOneOut);
}

PolicyLoss policy_loss_of(const RunConfig& config) {
  using enum PolicyLoss;
  return config.policy.policy_loss.value_or(is_ppo(config)    ? kPpo
                                            : is_grpo(config) ? kDapo
                                                              : kSequenceSum);
}

double epsilon_high_of(const RunConfig& config) {
  return config.policy.epsilon_high.value_or(config.policy.epsilon);
}

double critic_learning_rate_of(const RunConfig& config) {
  return config.ppo.critic_learning_rate.value_or(config.optimizer.learning_rate);
}

double kl_coef_of(const RunConfig& config) {
  return config.policy.kl_coef.value_or(is_grpo(config) ? 0 : kKlCoef);
}

KlPlace kl_place_of(const RunConfig& config) {
  return config.policy.kl_in.value_or(is_grpo(config) ? KlPlace::kLoss : KlPlace::kReward);
}

KlEstimator kl_estimator_of(const RunConfig& config) {
  const bool in_loss = kl_place_of(config) == KlPlace::kLoss;
  return config.policy.kl_estimator.value_or(in_loss ? KlEstimator::kK3 : KlEstimator::kK1);
}

bool has_critic(const RunConfig& config) {
  return is_online(config.stage) && advantage_estimator_of(config) == AdvantageEstimator::kGae;
}

bool compares_groups(AdvantageEstimator estimator) {
  using enum AdvantageEstimator;
  return estimator == kGroup || estimator == kLeaveOneOut ||
         estimator == kReinforcePlusPlusBaseline;
}

}  // namespace skein::config
