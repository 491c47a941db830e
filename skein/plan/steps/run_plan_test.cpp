// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/steps/run_plan.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"

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
  EXPECT_TRUE(plan.evals_at(20));
  EXPECT_FALSE(plan.evals_at(21));
  EXPECT_TRUE(plan.evals_at(25));
  EXPECT_FALSE(plan.saves_at(25));
  EXPECT_TRUE(plan.logs_at(1));
}

// Epochs of 5, 7, 3, 5, 7, 3, … packs.
class UnevenPacks final : public data::Packs {
 public:
  int64_t count(int64_t epoch) const override {
    const int64_t counts[] = {5, 7, 3};
    return counts[epoch % 3];
  }
  bool is_even() const override { return false; }
  void append(int64_t, int64_t, std::vector<int64_t>&) const override {}
};

TEST(RunPlan, EpochsThatDifferAreCountedOneByOne) {
  const data::EpochSteps epochs(std::make_shared<UnevenPacks>(), 2, false);  // 3, 4, 2 steps
  config::RunConfig config;
  config.schedule.num_train_epochs = 3;
  config.eval.eval_strategy = config::EvalStrategy::kEpoch;
  config.checkpoint.save_steps = 4;
  auto plan = plan_run(config, epochs);
  EXPECT_EQ(plan.total_steps, 3 + 4 + 2);
  EXPECT_EQ(plan.steps_per_epoch, 3);
  EXPECT_EQ(epochs.epochs_of(0), 0);
  EXPECT_EQ(epochs.epochs_of(3), 1);
  EXPECT_EQ(epochs.epochs_of(5), 1.5);
  EXPECT_EQ(epochs.epochs_of(9), 3);
  std::vector<int64_t> evaluated, saved;
  for (int64_t step = 1; step <= plan.total_steps; ++step) {
    if (plan.evals_at(step)) evaluated.push_back(step);
    if (plan.saves_at(step)) saved.push_back(step);
  }
  EXPECT_EQ(evaluated, (std::vector<int64_t>{3, 7, 9}));
  EXPECT_EQ(saved, (std::vector<int64_t>{4, 8, 9}));
  config.schedule.num_train_epochs = 1.3;
  EXPECT_EQ(plan_run(config, epochs).total_steps, 3 + 2);
  config.schedule.max_steps = 11;
  plan = plan_run(config, epochs);
  EXPECT_EQ(plan.epoch_ends, (std::vector<int64_t>{3, 7, 9, 12}));
  EXPECT_TRUE(plan.evals_at(11));
  config.schedule.max_steps = 0;
  config.schedule.num_train_epochs = 1e9;
  EXPECT_THROW(plan_run(config, epochs), UserError);
}

}  // namespace
}  // namespace skein::plan
