// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many updates does a run make, and what happens after which of them?

#include <cstdint>

#include "skein/config/run_config.h"

namespace skein::plan {

// Intervals in steps; 0: never.
struct RunPlan {
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;  // 0: unknown
  int64_t warmup_steps = 0;
  int64_t log_every = 0;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  bool log_first = false;

  // Steps count finished updates from 1; the last one is always due.
  bool is_due(int64_t finished_steps, int64_t every) const;
  bool logs_at(int64_t finished_steps) const;
};

// Requires max_steps > 0 or steps_per_epoch > 0. Throws UserError for more than 2^53 steps.
RunPlan plan_run(const config::RunConfig& config, int64_t steps_per_epoch);

}  // namespace skein::plan
