// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/run_plan.h"

#include <gtest/gtest.h>

namespace skein::plan {
namespace {

TEST(RunPlan, CountsStepsByEpochsUnlessMaxStepsIsGiven) {
  config::RunConfig config;
  config.schedule.num_train_epochs = 1.5;
  EXPECT_EQ(plan_run(config, 7).total_steps, 11);
  config.schedule.max_steps = 4;
  EXPECT_EQ(plan_run(config, 7).total_steps, 4);
  EXPECT_EQ(plan_run(config, 0).total_steps, 4);
}

TEST(RunPlan, IntervalsBelowOneAreShares) {
  config::RunConfig config;
  config.schedule.max_steps = 30;
  config.schedule.warmup_ratio = 1;
  config.log.logging_steps = 0.1;
  config.checkpoint.save_steps = 0.5;
  config.eval.eval_strategy = config::EvalStrategy::kSteps;
  const auto plan = plan_run(config, 10);
  EXPECT_EQ(plan.warmup_steps, 30);  // a share is of all steps, also when it is all of them
  EXPECT_EQ(plan.log_every, 3);
  EXPECT_EQ(plan.save_every, 15);
  EXPECT_EQ(plan.eval_every, 3);  // eval_steps 0: logging_steps
}

TEST(RunPlan, EpochsAreIntervalsAndTheLastStepIsDue) {
  config::RunConfig config;
  config.schedule.max_steps = 25;
  config.eval.eval_strategy = config::EvalStrategy::kEpoch;
  config.checkpoint.save_strategy = config::SaveStrategy::kNo;
  config.log.logging_first_step = true;
  const auto plan = plan_run(config, 10);
  EXPECT_EQ(plan.eval_every, 10);
  EXPECT_TRUE(plan.is_due(20, plan.eval_every));
  EXPECT_FALSE(plan.is_due(21, plan.eval_every));
  EXPECT_TRUE(plan.is_due(25, plan.eval_every));
  EXPECT_FALSE(plan.is_due(25, plan.save_every));
  EXPECT_TRUE(plan.logs_at(1));
}

}  // namespace
}  // namespace skein::plan
