// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What would `skein train` do with this configuration? Reads files, starts and writes nothing.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/core/file.h"
#include "skein/plan/data_outlook.h"
#include "skein/plan/families/architecture.h"
#include "skein/plan/fit.h"
#include "skein/plan/rules.h"
#include "skein/plan/steps/rollout_plan.h"
#include "skein/plan/steps/run_plan.h"

namespace skein::plan {

struct DiskOutlook {
  uint64_t model_bytes = 0, optimizer_bytes = 0;  // of one checkpoint
  uint64_t critic_bytes = 0;                      // of its critic, optimizer and all
  int64_t checkpoints = 0;                        // kept at the end
  uint64_t total_bytes = 0;  // with the final model; while saving, one more checkpoint
  std::optional<uint64_t> free_bytes;
};

// What lies in output_dir already.
struct Continuation {
  fs::path checkpoint;                          // empty: the final model alone
  int64_t step = 0;                             // done
  bool nothing_left = false;                    // the final model is there too
  std::optional<std::string> ended_early = {};  // why: reason_to_end()
};

struct ModelOutlook {
  Shapes shapes;
  Dimensions dimensions;
  Choice choice;                  // what the run will do
  int64_t tokens = 0;             // of the longest row
  std::vector<RankBytes> stages;  // what a rank needs, by stage
  bool fits = true;
};

struct Outlook {
  config::BatchPlan batches;
  std::optional<RolloutPlan> rollout = {};                    // of ppo, grpo, rloo
  int stage = 0;                                              // ZeRO's
  DType dtype = DType::kF32;                                  // of the weights in forward
  std::vector<std::pair<std::string, std::string>> resolved;  // what `auto` and the like become
  std::vector<std::string> reasons;                           // why, a line each
  double peak_learning_rate = 0;
  DataOutlook data;
  std::optional<Continuation> continues;  // absent: starts from the beginning
  std::optional<RunPlan> steps;           // absent: neither max_steps nor data that can be counted
  std::optional<ModelOutlook> model;
  std::optional<DiskOutlook> disk;
  std::vector<std::string> files;  // that the run will write: files_of_run()
  std::vector<std::string> warnings;
};

// Throws UserError for what `skein train` refuses (refusals.h), in the same words.
Outlook look_ahead(const config::Resolved& given, const Machine& machine);

}  // namespace skein::plan
