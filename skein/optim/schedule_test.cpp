// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/schedule.h"

#include <gtest/gtest.h>

namespace skein::optim {
namespace {

using config::Schedule;

TEST(Schedule, WarmupStartsAtZeroAndReachesOne) {
  for (const auto type : {Schedule::kLinear, Schedule::kCosine, Schedule::kConstantWithWarmup}) {
    const config::ScheduleConfig schedule{.lr_scheduler_type = type, .warmup_steps = 4};
    EXPECT_EQ(schedule_factor(schedule, 0, 10), 0);
    EXPECT_EQ(schedule_factor(schedule, 2, 10), 0.5);
    EXPECT_EQ(schedule_factor(schedule, 4, 10), 1);
  }
}

TEST(Schedule, DecayEndsAtZero) {
  const config::ScheduleConfig linear{.lr_scheduler_type = Schedule::kLinear};
  EXPECT_EQ(schedule_factor(linear, 0, 8), 1);
  EXPECT_EQ(schedule_factor(linear, 6, 8), 0.25);
  EXPECT_EQ(schedule_factor(linear, 8, 8), 0);
  EXPECT_EQ(schedule_factor(linear, 9, 8), 0);
  const config::ScheduleConfig cosine{.lr_scheduler_type = Schedule::kCosine};
  EXPECT_NEAR(schedule_factor(cosine, 4, 8), 0.5, 1e-15);
  EXPECT_NEAR(schedule_factor(cosine, 8, 8), 0, 1e-15);
}

TEST(Schedule, SharesAreRoundedUpAndStepsWin) {
  EXPECT_EQ(warmup_steps({.warmup_ratio = 0.11}, 10), 2);
  EXPECT_EQ(warmup_steps({.warmup_steps = 0.25}, 10), 3);
  EXPECT_EQ(warmup_steps({.warmup_steps = 5, .warmup_ratio = 0.5}, 100), 5);
}

}  // namespace
}  // namespace skein::optim
