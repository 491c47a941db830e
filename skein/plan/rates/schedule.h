// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which learning rate does an update use? Hugging Face's formulas, nanoGPT's and DeepSpeed's.

#include <cstdint>

#include "skein/config/run_config.h"

namespace skein::plan {

// warmup_steps below 1 and warmup_ratio are shares of all steps, rounded up.
int64_t warmup_steps(const config::ScheduleConfig& schedule, int64_t total_steps);

// Of the update that `step` others went before; such as were left out do not count.
double learning_rate(const config::ScheduleConfig& schedule, double peak, int64_t step,
                     int64_t total_steps);

// What lr_scaling makes of the configured rate: times the growth of the batch, or its root.
double scaled_peak(const config::ScheduleConfig& schedule, double configured, int64_t global_batch,
                   int64_t batch_of_one_rank);

}  // namespace skein::plan
