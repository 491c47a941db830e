// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rates/deepspeed_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "skein/plan/rates/schedule.h"

namespace skein::plan {
namespace {

using config::DsCompat;
using config::Schedule;
using config::ScheduleConfig;
using config::WarmupCurve;

// tests/parity compares every type with DeepSpeed itself; these hold the shape of each.

std::vector<double> rates(const ScheduleConfig& schedule, double peak, int64_t count,
                          int64_t total) {
  std::vector<double> found;
  for (int64_t step = 0; step < count; ++step) {
    found.push_back(learning_rate(schedule, peak, step, total));
  }
  return found;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-14) << i;
}

TEST(DeepSpeedSchedule, WarmupIsLogarithmicUnlessToldOtherwise) {
  ScheduleConfig schedule{.lr_scheduler_type = Schedule::kWarmupLr, .warmup_steps = 4};
  expect_near(rates(schedule, 2, 7, 100), {0, 0, 1, 2 * std::log(3) / std::log(4), 2, 2, 2});
  schedule.warmup_type = WarmupCurve::kLinear;
  schedule.deepspeed.warmup_min_lr = 1;
  expect_near(rates(schedule, 2, 7, 100), {1, 1, 1.25, 1.5, 1.75, 2, 2});
}

TEST(DeepSpeedSchedule, AWarmupHasAtLeastTwoSteps) {
  for (const double warmup : {0.0, 1.0, 2.0}) {
    const ScheduleConfig schedule{.lr_scheduler_type = Schedule::kWarmupLr, .warmup_steps = warmup};
    expect_near(rates(schedule, 1, 4, 100), {0, 0, 1, 1});
  }
}

TEST(DeepSpeedSchedule, DecayFallsToTheFirstRateAndStays) {
  ScheduleConfig schedule{.lr_scheduler_type = Schedule::kWarmupDecayLr,
                          .warmup_steps = 2,
                          .warmup_type = WarmupCurve::kLinear};
  expect_near(rates(schedule, 1, 9, 6), {0, 0, 0.5, 1, 0.75, 0.5, 0.25, 0, 0});
  schedule.deepspeed.total_num_steps = 4;  // not the run's
  expect_near(rates(schedule, 1, 7, 6), {0, 0, 0.5, 1, 0.5, 0, 0});
  schedule.warmup_steps = 9;  // the warm-up is longer than all
  EXPECT_NEAR(learning_rate(schedule, 1, 9, 6), 8.0 / 9, 1e-15);
  EXPECT_EQ(learning_rate(schedule, 1, 10, 6), 0);
}

TEST(DeepSpeedSchedule, CosineStaysAtItsEndOrSwingsBack) {
  ScheduleConfig schedule{.lr_scheduler_type = Schedule::kWarmupCosineLr,
                          .warmup_steps = 2,
                          .warmup_type = WarmupCurve::kLinear};
  schedule.deepspeed.warmup_min_ratio = 0.5;
  schedule.deepspeed.cos_min_ratio = 0.1;
  const double middle = 0.1 + 0.9 * 0.5;
  expect_near(rates(schedule, 1, 8, 4), {0, 0.5, 0.75, middle, 0.1, 0.1, 0.1, 0.1});
  schedule.deepspeed.ds_compat = DsCompat::k0_16;
  expect_near(rates(schedule, 1, 8, 4), {0, 0.5, 0.75, middle, 0.1, middle, 1, middle});
}

TEST(DeepSpeedSchedule, OneCycleRisesFallsAndDecays) {
  ScheduleConfig schedule{.lr_scheduler_type = Schedule::kOneCycle};
  auto& keys = schedule.deepspeed;
  keys.cycle_min_lr = 1;
  keys.cycle_first_step_size = 2;
  keys.cycle_second_step_size = 4;
  expect_near(rates(schedule, 5, 9, 100), {1, 3, 5, 4, 3, 2, 1, 1, 1});
  keys.decay_step_size = 2;
  keys.decay_lr_rate = 2;
  expect_near(rates(schedule, 5, 9, 100), {1, 3, 5, 4, 3, 2, 1, 0.5, 1.0 / 3});
  keys.cycle_second_stair_count = 2;
  expect_near(rates(schedule, 5, 6, 100), {1, 3, 5, 3, 3, 1});
  keys.ds_compat = DsCompat::k0_16;
  expect_near(rates(schedule, 5, 6, 100), {1, 3, 5, 4, 3, 2});
}

TEST(DeepSpeedSchedule, RangeTestGrowsForEver) {
  ScheduleConfig schedule{.lr_scheduler_type = Schedule::kLrRangeTest};
  schedule.deepspeed.lr_range_test_step_size = 2;
  schedule.deepspeed.lr_range_test_step_rate = 3;
  expect_near(rates(schedule, 1, 5, 2), {1, 2.5, 4, 5.5, 7});
  schedule.deepspeed.lr_range_test_staircase = true;
  expect_near(rates(schedule, 1, 5, 2), {1, 1, 4, 4, 7});
}

}  // namespace
}  // namespace skein::plan
