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
#include "skein/launch/plan/hardware.h"
#include "skein/launch/plan/launch_plan.h"
#include "skein/plan/memory_estimate.h"
#include "skein/plan/shapes.h"

namespace skein::cli {

struct DataOutlook {
  size_t files = 0;
  uint64_t bytes = 0;
  int64_t tokens = 0;
  int64_t blocks = 0;   // that are trained on
  bool exact = false;   // else the number of tokens is extrapolated from a sample
  std::string problem;  // why there are no numbers
};

struct StepsOutlook {
  int64_t total = 0;
  int64_t per_epoch = 0;  // 0: unknown
  double epochs = 0;
  int64_t warmup = 0, log_every = 0, save_every = 0, eval_every = 0;  // 0: never
  std::string origin;                                                 // which key decides
};

struct DiskOutlook {
  uint64_t model_bytes = 0, optimizer_bytes = 0;  // of one checkpoint
  int64_t checkpoints = 0;                        // kept at the end
  uint64_t total_bytes = 0;  // with the final model; while saving, one more checkpoint
  std::optional<uint64_t> free_bytes;
};

struct Outlook {
  launch::Hardware hardware;
  uint64_t host_memory = 0;
  launch::LaunchPlan launch;
  config::BatchPlan batches;
  std::vector<std::pair<std::string, std::string>> resolved;  // what `auto` and the like become
  double peak_learning_rate = 0;
  plan::Shapes shapes;  // empty without a model
  int stage = 0;
  std::string dtype;
  int64_t gradient_bytes = 4;
  std::vector<plan::FlatBytes> flat;  // by stage
  std::vector<int64_t> peaks;         // of a step, by stage
  plan::Activations activations;
  DataOutlook data;
  std::optional<StepsOutlook> steps;
  std::optional<DiskOutlook> disk;
  std::vector<std::string> files;
  std::vector<std::string> warnings;
};

Outlook look_ahead(const config::Resolved& resolved, const launch::Hardware& hardware,
                   const launch::LaunchPlan& launch);

}  // namespace skein::cli
