// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rates/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "skein/plan/rates/deepspeed_schedule.h"

namespace skein::plan {
namespace {

using config::Curve;
using config::Schedule;
using config::ScheduleConfig;
using config::WarmupCurve;

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

double cosine(double cycles, double progress) {
  return 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * progress));
}

// A factor that falls to `floor` instead of 0.
double above(double floor, double factor) { return factor * (1 - floor) + floor; }

double rising(WarmupCurve curve, double progress) {
  if (curve == WarmupCurve::kCosine) return 0.5 * (1 - std::cos(std::numbers::pi * progress));
  if (curve == WarmupCurve::kOneMinusSqrt) return 1 - std::sqrt(1 - progress);
  return progress;
}

double falling(Curve curve, double progress, double cycles) {
  switch (curve) {
    case Curve::kLinear:
      return 1 - progress;
    case Curve::kCosine:
      return cosine(cycles, progress);
    case Curve::kOneMinusSqrt:
      return 1 - std::sqrt(progress);
  }
  return 1 - progress;
}

double warmup_stable_decay(const ScheduleConfig& schedule, int64_t step, int64_t warmup,
                           int64_t total) {
  const double floor = schedule.min_lr_rate;
  const double cycles = schedule.num_cycles < 0 ? 0.5 : schedule.num_cycles;
  const int64_t decay = schedule.num_decay_steps;
  const int64_t stable =
      schedule.num_stable_steps > 0 ? schedule.num_stable_steps : total - warmup - decay;
  if (step < warmup) {
    return std::max(0.0, above(floor, rising(schedule.warmup_type, ratio(step, warmup))));
  }
  if (step < warmup + stable) return 1;
  if (step >= warmup + stable + decay) return floor;
  const double progress = ratio(step - warmup - stable, decay);
  return std::max(0.0, above(floor, falling(schedule.decay_type, progress, cycles)));
}

// nanoGPT warms up from 1/(W+1), not from 0, and holds min_lr after lr_decay_iters.
double nanogpt(const ScheduleConfig& schedule, double peak, int64_t step, int64_t warmup,
               int64_t total) {
  const double floor = schedule.min_lr / peak;
  const int64_t end = schedule.lr_decay_iters > 0 ? schedule.lr_decay_iters : total;
  if (step < warmup) return ratio(step + 1, warmup + 1);
  if (step > end) return floor;
  return floor + cosine(0.5, ratio(step - warmup, end - warmup)) * (1 - floor);
}

double polynomial(const ScheduleConfig& schedule, double peak, int64_t past_warmup, int64_t decay) {
  if (past_warmup > decay) return schedule.lr_end / peak;
  const double left = 1 - ratio(past_warmup, decay);
  return ((peak - schedule.lr_end) * std::pow(left, schedule.power) + schedule.lr_end) / peak;
}

double inverse_sqrt(const ScheduleConfig& schedule, int64_t step, int64_t warmup) {
  const int64_t automatic = warmup > 0 ? warmup : 10'000;
  const int64_t timescale = schedule.timescale > 0 ? schedule.timescale : automatic;
  return 1 / std::sqrt(ratio(step + timescale - warmup, timescale));
}

double restarts(double cycles, double progress) {
  if (progress >= 1) return 0;
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * std::fmod(cycles * progress, 1.0))));
}

// The factor on the peak rate.
double factor_at(const ScheduleConfig& schedule, double peak, int64_t step, int64_t total) {
  const auto type = schedule.lr_scheduler_type;
  const int64_t warmup = warmup_steps(schedule, total);
  if (type == Schedule::kConstant) return 1;
  if (type == Schedule::kWarmupStableDecay)
    return warmup_stable_decay(schedule, step, warmup, total);
  if (type == Schedule::kNanoGpt) return nanogpt(schedule, peak, step, warmup, total);
  if (step < warmup) return ratio(step, warmup);

  const double progress = ratio(step - warmup, total - warmup);
  const double cycles = schedule.num_cycles < 0 ? 0.5 : schedule.num_cycles;
  switch (type) {
    case Schedule::kLinear:
      return std::max(0.0, ratio(total - step, total - warmup));
    case Schedule::kCosine:
      return std::max(0.0, cosine(cycles, progress));
    case Schedule::kCosineWithRestarts:
      return restarts(schedule.num_cycles < 0 ? 1 : schedule.num_cycles, progress);
    case Schedule::kCosineWithMinLr: {
      const double floor = schedule.min_lr > 0 ? schedule.min_lr / peak : schedule.min_lr_rate;
      return std::max(0.0, above(floor, cosine(cycles, progress)));
    }
    case Schedule::kPolynomial:
      return polynomial(schedule, peak, step - warmup, total - warmup);
    case Schedule::kInverseSqrt:
      return inverse_sqrt(schedule, step, warmup);
    default:
      return 1;  // constant_with_warmup
  }
}

}  // namespace

int64_t warmup_steps(const ScheduleConfig& schedule, int64_t total_steps) {
  if (schedule.warmup_steps >= 1) return static_cast<int64_t>(schedule.warmup_steps);
  const double share = schedule.warmup_steps > 0 ? schedule.warmup_steps : schedule.warmup_ratio;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share));
}

double learning_rate(const ScheduleConfig& schedule, double peak, int64_t step,
                     int64_t total_steps) {
  if (is_deepspeed(schedule.lr_scheduler_type)) {
    return deepspeed_rate(schedule, peak, step, total_steps);
  }
  if (peak == 0) return 0;
  return peak * factor_at(schedule, peak, step, total_steps);
}

double scaled_peak(const ScheduleConfig& schedule, double configured, int64_t global_batch,
                   int64_t batch_of_one_rank) {
  const int64_t base =
      schedule.lr_scaling_base_batch > 0 ? schedule.lr_scaling_base_batch : batch_of_one_rank;
  const double growth = ratio(global_batch, base);
  switch (schedule.lr_scaling) {
    case config::LrScaling::kNone:
      return configured;
    case config::LrScaling::kLinear:
      return configured * growth;
    case config::LrScaling::kSqrt:
      return configured * std::sqrt(growth);
  }
  return configured;
}

}  // namespace skein::plan
