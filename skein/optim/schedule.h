// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which learning rate does a step use? Hugging Face's formulas; steps count from 0.

#include <cstdint>

#include "skein/config/run_config.h"

namespace skein::optim {

// warmup_steps below 1 and warmup_ratio are shares of all steps, rounded up.
int64_t warmup_steps(const config::ScheduleConfig& schedule, int64_t total_steps);

// The factor in [0, 1] on the peak rate.
double schedule_factor(const config::ScheduleConfig& schedule, int64_t step, int64_t total_steps);

}  // namespace skein::optim
