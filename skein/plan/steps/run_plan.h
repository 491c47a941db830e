// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many updates does a run make, and what happens after which of them?

#include <cstdint>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/data/packs.h"

namespace skein::plan {

// Intervals in steps; 0: never.
struct RunPlan {
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;  // of the first epoch; 0: unknown
  int64_t warmup_steps = 0;
  int64_t log_every = 0;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  bool log_first = false;
  // At the end of each epoch; the interval is then the first epoch's length.
  bool evals_by_epoch = false, saves_by_epoch = false;
  // Steps done at the end of each epoch, where epochs differ and something happens there.
  std::vector<int64_t> epoch_ends;

  // Steps count finished updates from 1; the last one is always due, of what is not off.
  bool logs_at(int64_t finished_steps) const;
  bool evals_at(int64_t finished_steps) const;
  bool saves_at(int64_t finished_steps) const;

 private:
  bool is_due(int64_t finished_steps, int64_t every, bool by_epoch) const;
};

// Requires max_steps > 0 or steps_per_epoch > 0. Throws UserError for more than 2^53 steps.
RunPlan plan_run(const config::RunConfig& config, int64_t steps_per_epoch);
// The same for epochs that may differ.
RunPlan plan_run(const config::RunConfig& config, const data::EpochSteps& epochs);

}  // namespace skein::plan
