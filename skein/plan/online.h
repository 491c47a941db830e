// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What follows from the keys of stages ppo, grpo and rloo besides their steps
// (plan/steps/rollout_plan.h): the models beside the policy, and what will not run. The reference
// is that of preferences.h. All but has_reward_model(),
// check_cache() and check_warmup() require such a stage.

#include <cstdint>
#include <string>

#include "skein/config/load.h"
#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/model_folder.h"

namespace skein::plan {

// Is there a frozen model that scores answers?
bool has_reward_model(const config::RunConfig& config);
// Its folder, and what lies in it; requires that there is one. Throws UserError where it is none.
ModelFolder reward_folder(const config::RunConfig& config);
// Its architecture, with a head that scores.
HfConfig read_reward_model(const config::RunConfig& config);

// How the critic is made and trained, as a run of its own would be: a model of stage rm that begins
// from critic_model, else from the reward model where that reads the policy's tokens and is no
// adapter, else from the policy's weights with a new head; tuned as the policy is. Requires
// config::has_critic().
config::RunConfig critic_config(const config::RunConfig& config);

// Throws UserError for keys that contradict each other, or lack what the stage needs.
void check_online_keys(const config::Resolved& resolved);

// The same for models that do not go together: a reward model that does not score, reads other
// tokens or too few of them, a critic of another vocabulary, a policy whose answers never end or
// that has no positions for them. `model`: the policy.
void check_online_models(const config::Resolved& resolved, const HfConfig& model);

// Keys and values of a text of so many tokens, in this type: the least that a cache may have.
int64_t cache_bytes(const Dimensions& model, int64_t tokens, DType dtype);
// Throws UserError for a rollout_cache_size that does not hold the longest answer.
void check_cache(const config::Resolved& resolved, const Dimensions& model, DType dtype);
// The same for a critic that would learn alone to the end.
void check_warmup(const config::Resolved& resolved, int64_t total_steps);

}  // namespace skein::plan
