// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a step of stages ppo, grpo and rloo?
//
// One rollout and all updates that are made of it; all intervals, limits and schedules count such
// steps. With G answers per update (the global batch: per device x accumulation x ranks), n answers
// to each prompt, M mini-batches and K iterations a step has
//
//   M G / n prompts,  M G answers,  M K updates.
//
// The order of prompts is a SamplePlan over prompts whose global batch is M G / n.

#include <cstdint>
#include <string>

#include "skein/config/batch_plan.h"
#include "skein/config/run_config.h"

namespace skein::plan {

struct RolloutPlan {
  int64_t prompts = 0;      // of a step
  int64_t generations = 0;  // of each prompt
  int64_t completions = 0;  // prompts x generations = mini_batches x the global batch
  int64_t mini_batches = 0;
  int64_t iterations = 0;        // over the completions of a step
  int64_t updates_per_step = 0;  // mini_batches x iterations
  int64_t most_tokens = 0;       // of all completions with their prompts

  bool operator==(const RolloutPlan&) const = default;

  // "a step: 8 prompts x 8 generations = 64 completions, 2 updates (2 mini-batches x 1 iteration),
  // at most 65,536 tokens".
  std::string line() const;
};

// Requires an online stage (config::is_online). Throws UserError where the numbers do not close, or
// one prompt's answers do not fit into whole steps, with the ways to close them.
RolloutPlan rollout_plan(const config::RunConfig& config, const config::BatchPlan& batches);
int64_t prompts_per_step(const config::RunConfig& config, const config::BatchPlan& batches);

// What a step takes of the data's order, of every stage: prompts, or the global batch.
int64_t samples_per_step(const config::RunConfig& config, const config::BatchPlan& batches);

}  // namespace skein::plan
