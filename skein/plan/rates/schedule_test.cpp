// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rates/schedule.h"

#include <gtest/gtest.h>

namespace skein::plan {
namespace {

using config::LrScaling;
using config::Schedule;

// tests/parity compares every type with transformers; these hold the shape of each.

TEST(Schedule, WarmupStartsAtZeroAndReachesThePeak) {
  for (const auto type : {Schedule::kLinear, Schedule::kCosine, Schedule::kConstantWithWarmup,
                          Schedule::kPolynomial, Schedule::kInverseSqrt}) {
    const config::ScheduleConfig schedule{.lr_scheduler_type = type, .warmup_steps = 4};
    EXPECT_EQ(learning_rate(schedule, 2, 0, 10), 0);
    EXPECT_EQ(learning_rate(schedule, 2, 2, 10), 1);
    EXPECT_EQ(learning_rate(schedule, 2, 4, 10), 2);
  }
}

TEST(Schedule, DecayEndsAtZero) {
  const config::ScheduleConfig linear{.lr_scheduler_type = Schedule::kLinear};
  EXPECT_EQ(learning_rate(linear, 1, 0, 8), 1);
  EXPECT_EQ(learning_rate(linear, 1, 6, 8), 0.25);
  EXPECT_EQ(learning_rate(linear, 1, 8, 8), 0);
  EXPECT_EQ(learning_rate(linear, 1, 9, 8), 0);
  const config::ScheduleConfig cosine{.lr_scheduler_type = Schedule::kCosine};
  EXPECT_NEAR(learning_rate(cosine, 1, 4, 8), 0.5, 1e-15);
  EXPECT_NEAR(learning_rate(cosine, 1, 8, 8), 0, 1e-15);
}

TEST(Schedule, StableDecayHoldsThenFalls) {
  const config::ScheduleConfig schedule{.lr_scheduler_type = Schedule::kWarmupStableDecay,
                                        .warmup_steps = 2,
                                        .min_lr_rate = 0.1,
                                        .num_decay_steps = 4};
  EXPECT_EQ(learning_rate(schedule, 1, 2, 12), 1);
  EXPECT_EQ(learning_rate(schedule, 1, 7, 12), 1);
  EXPECT_LT(learning_rate(schedule, 1, 9, 12), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 12, 12), 0.1);
}

TEST(Schedule, NanogptWarmsUpFromOneStep) {
  const config::ScheduleConfig schedule{
      .lr_scheduler_type = Schedule::kNanoGpt, .warmup_steps = 3, .min_lr = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 0, 10), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 3, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 10, 10), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 99, 10), 0.1);
}

TEST(Schedule, SharesAreRoundedUpAndStepsWin) {
  EXPECT_EQ(warmup_steps({.warmup_ratio = 0.11}, 10), 2);
  EXPECT_EQ(warmup_steps({.warmup_steps = 0.25}, 10), 3);
  EXPECT_EQ(warmup_steps({.warmup_steps = 5, .warmup_ratio = 0.5}, 100), 5);
}

TEST(Schedule, ScalingGrowsWithTheBatch) {
  EXPECT_EQ(scaled_peak({}, 1e-3, 64, 8), 1e-3);
  EXPECT_EQ(scaled_peak({.lr_scaling = LrScaling::kLinear}, 1e-3, 64, 16), 4e-3);
  EXPECT_EQ(scaled_peak({.lr_scaling = LrScaling::kSqrt}, 1e-3, 64, 16), 2e-3);
  EXPECT_EQ(
      scaled_peak({.lr_scaling = LrScaling::kLinear, .lr_scaling_base_batch = 32}, 1e-3, 64, 16),
      2e-3);
}

}  // namespace
}  // namespace skein::plan
