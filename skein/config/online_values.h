// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do keys of stages ppo, grpo and rloo mean where nobody gave them? Each stage has its own
// defaults, and some keys follow from others. Requires such a stage, but where said.

#include <cstdint>

#include "skein/config/run_config.h"

namespace skein::config {

int64_t generations_of(const RunConfig& config);  // answers to each prompt
int64_t iterations_of(const RunConfig& config);   // over the answers of a step
AdvantageEstimator advantage_estimator_of(const RunConfig& config);
PolicyLoss policy_loss_of(const RunConfig& config);
double epsilon_high_of(const RunConfig& config);
double critic_learning_rate_of(const RunConfig& config);

double kl_coef_of(const RunConfig& config);  // 0: no reference is asked
KlPlace kl_place_of(const RunConfig& config);
KlEstimator kl_estimator_of(const RunConfig& config);

// Whether a critic learns beside the policy; false of other stages.
bool has_critic(const RunConfig& config);
// Whether rewards are compared with those of other answers to the same prompt.
bool compares_groups(AdvantageEstimator estimator);

}  // namespace skein::config
