// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rates/deepspeed_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "skein/core/error.h"
#include "skein/plan/rates/schedule.h"

namespace skein::plan {
namespace {

using config::DsCompat;
using config::Schedule;
using config::ScheduleConfig;

// A warm-up is never shorter than two updates.
int64_t num_warmup(const ScheduleConfig& schedule, int64_t total) {
  return std::max<int64_t>(2, warmup_steps(schedule, total));
}

int64_t last_step(const ScheduleConfig& schedule, int64_t total) {
  return schedule.deepspeed.total_num_steps > 0 ? schedule.deepspeed.total_num_steps : total;
}

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

// From 0 to 1; `count` is DeepSpeed's, one behind the update.
double risen(const ScheduleConfig& schedule, int64_t count, int64_t warmup) {
  if (schedule.warmup_type == config::WarmupCurve::kLinear) return share(count, warmup);
  return std::log(static_cast<double>(count + 1)) / std::log(static_cast<double>(warmup));
}

double warmup_factor(const ScheduleConfig& schedule, int64_t count, int64_t total) {
  const int64_t warmup = num_warmup(schedule, total);
  if (count < 0) return 0;
  if (count < warmup) return risen(schedule, count, warmup);
  if (schedule.lr_scheduler_type == Schedule::kWarmupLr) return 1;
  const int64_t end = last_step(schedule, total);
  return std::max(0.0, share(end - count, end - warmup));
}

double cosine_factor(const ScheduleConfig& schedule, int64_t count, int64_t total) {
  const auto& keys = schedule.deepspeed;
  const int64_t warmup = num_warmup(schedule, total);
  if (count < 0) return 0;  // not warmup_min_ratio
  if (count < warmup) {
    return keys.warmup_min_ratio + risen(schedule, count, warmup) * (1 - keys.warmup_min_ratio);
  }
  double progress = share(count - warmup + 1, last_step(schedule, total) - warmup);
  if (keys.ds_compat != DsCompat::k0_16) progress = std::min(1.0, progress);  // 0.16 swings back
  const double wave = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return std::max(0.0, keys.cos_min_ratio + (1 - keys.cos_min_ratio) * wave);
}

// 0 at the ends of the cycle, 1 at its top. 0.16 knows the keys of stairs and makes none.
double cycle_height(const config::DeepSpeedScheduleConfig& keys, int64_t step, int64_t second) {
  const int64_t first = keys.cycle_first_step_size;
  const int64_t place = step % (first + second);
  const bool rises = place <= first;
  const int64_t height = rises ? place : first + second - place, top = rises ? first : second;
  const int64_t stairs = rises
                             ? keys.cycle_first_stair_count
                             : keys.cycle_second_stair_count.value_or(keys.cycle_first_stair_count);
  if (stairs == 0 || keys.ds_compat == DsCompat::k0_16) return share(height, top);
  const auto count = static_cast<double>(stairs);
  return std::floor(static_cast<double>(height) * count / static_cast<double>(top)) / count;
}

double one_cycle(const config::DeepSpeedScheduleConfig& keys, double peak, int64_t step) {
  const int64_t second = keys.cycle_second_step_size.value_or(keys.cycle_first_step_size);
  const int64_t past = step - keys.cycle_first_step_size - second;
  if (past <= 0) {
    return keys.cycle_min_lr + (peak - keys.cycle_min_lr) * cycle_height(keys, step, second);
  }
  if (keys.decay_step_size == 0) return keys.cycle_min_lr;
  return keys.cycle_min_lr / (1 + keys.decay_lr_rate * share(past, keys.decay_step_size));
}

double range_test(const config::DeepSpeedScheduleConfig& keys, double first, int64_t step) {
  const int64_t size = keys.lr_range_test_step_size;
  const int64_t reached = keys.lr_range_test_staircase ? step - step % size : step;
  return first * (1 + keys.lr_range_test_step_rate * share(reached, size));
}

}  // namespace

bool is_deepspeed(Schedule type) {
  return type == Schedule::kWarmupLr || type == Schedule::kWarmupDecayLr ||
         type == Schedule::kWarmupCosineLr || type == Schedule::kOneCycle ||
         type == Schedule::kLrRangeTest;
}

double deepspeed_rate(const ScheduleConfig& schedule, double peak, int64_t step, int64_t total) {
  const auto& keys = schedule.deepspeed;
  switch (schedule.lr_scheduler_type) {
    case Schedule::kWarmupLr:
    case Schedule::kWarmupDecayLr:
      return keys.warmup_min_lr +
             (peak - keys.warmup_min_lr) * warmup_factor(schedule, step - 1, total);
    case Schedule::kWarmupCosineLr:
      return peak * cosine_factor(schedule, step - 1, total);
    case Schedule::kOneCycle:
      return one_cycle(keys, peak, step);
    case Schedule::kLrRangeTest:
      return range_test(keys, peak, step);
    default:
      throw InternalError("not a schedule of DeepSpeed's");
  }
}

}  // namespace skein::plan
