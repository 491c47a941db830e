// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What follows from a configuration once the hardware and the data are known.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/parallel/segment.h"

namespace skein::train {

// Intervals in steps; 0: never.
struct RunPlan {
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t log_every = 0;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  bool log_first = false;

  // Steps count finished updates from 1; the last one is always due.
  bool is_due(int64_t finished_steps, int64_t every) const;
  bool logs_at(int64_t finished_steps) const;
};

RunPlan plan_run(const config::RunConfig& config, int64_t steps_per_epoch);

// output_dir, or outputs/<experiment_name>. Throws UserError when neither is given.
fs::path output_folder(const config::CheckpointConfig& checkpoint);
at::ScalarType working_dtype(config::DType dtype, at::Device device);
// As config.json writes it: float32, bfloat16, float64.
const char* dtype_word(at::ScalarType dtype);
parallel::Stage stage_of(config::Strategy strategy);

}  // namespace skein::train
