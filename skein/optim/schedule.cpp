// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace skein::optim {

int64_t warmup_steps(const config::ScheduleConfig& schedule, int64_t total_steps) {
  if (schedule.warmup_steps >= 1) return static_cast<int64_t>(schedule.warmup_steps);
  const double share = schedule.warmup_steps > 0 ? schedule.warmup_steps : schedule.warmup_ratio;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share));
}

double schedule_factor(const config::ScheduleConfig& schedule, int64_t step, int64_t total_steps) {
  using config::Schedule;
  if (schedule.lr_scheduler_type == Schedule::kConstant) return 1;
  const int64_t warmup = warmup_steps(schedule, total_steps);
  if (step < warmup)
    return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  const auto decay_steps = static_cast<double>(std::max<int64_t>(1, total_steps - warmup));
  switch (schedule.lr_scheduler_type) {
    case Schedule::kConstant:
    case Schedule::kConstantWithWarmup:
      return 1;
    case Schedule::kLinear:
      return std::max(0.0, static_cast<double>(total_steps - step) / decay_steps);
    case Schedule::kCosine: {
      const double progress = static_cast<double>(step - warmup) / decay_steps;
      return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    }
  }
  return 1;
}

}  // namespace skein::optim
