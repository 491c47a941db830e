// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many blocks does one update see, and who said so?
//
//   per device x accumulation x ranks = global
//
// Two of the first, second and last give the third; a missing number is 8 per device or 1
// accumulation, as in HF. Only the global batch given: accumulation is 1. Numbers that do not
// multiply are refused with the ways to make them, unless batch_conflict says which to keep.

#include <cstdint>
#include <string>

#include "skein/config/load.h"

namespace skein::config {

struct BatchPlan {
  int64_t per_device = 0;
  int64_t accumulation = 0;
  int64_t ranks = 0;
  int64_t global = 0;
  int64_t tokens_per_step = 0;  // input tokens of one update
  // A step of ppo, grpo and rloo has several of these updates (plan/steps/rollout_plan.h).
  bool is_part_of_step = false;
  std::string per_device_origin, accumulation_origin, global_origin;

  // "effective batch size: 256 = 8 per device x 4 accumulation x 8 ranks (… tokens per step)".
  std::string line() const;
  // line(), then one line per number with its origin.
  std::string table() const;
};

// Throws UserError when the numbers do not close.
BatchPlan plan_batches(const Resolved& resolved, int64_t world_size);

}  // namespace skein::config
