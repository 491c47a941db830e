// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/sample_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::data {
namespace {

std::vector<int64_t> samples_of_epoch(const SamplePlan& plan, int64_t epoch) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < plan.steps_per_epoch(); ++i) {
    const auto step = plan.step_plan(epoch * plan.steps_per_epoch() + i);
    EXPECT_EQ(step.epoch_index, epoch);
    samples.insert(samples.end(), step.samples.begin(), step.samples.end());
  }
  return samples;
}

TEST(SamplePlan, EverySampleOncePerEpoch) {
  const SampleSet set(11);
  for (const int64_t global_batch : {1, 2, 3, 4, 11, 12, 100}) {
    const SamplePlan plan(set, {.global_batch = global_batch, .seed = 5});
    EXPECT_EQ(plan.steps_per_epoch(), (11 + global_batch - 1) / global_batch);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      auto samples = samples_of_epoch(plan, epoch);
      std::sort(samples.begin(), samples.end());
      ASSERT_EQ(samples.size(), 11u);
      for (int64_t i = 0; i < 11; ++i) EXPECT_EQ(samples[i], i);
    }
  }
}

TEST(SamplePlan, OrderDoesNotDependOnTheGlobalBatch) {
  const SampleSet set(23);
  const auto expected = samples_of_epoch(SamplePlan(set, {.global_batch = 1, .seed = 5}), 1);
  EXPECT_EQ(samples_of_epoch(SamplePlan(set, {.global_batch = 6, .seed = 5}), 1), expected);
  EXPECT_NE(samples_of_epoch(SamplePlan(set, {.global_batch = 6, .seed = 6}), 1), expected);
  EXPECT_NE(samples_of_epoch(SamplePlan(set, {.global_batch = 6, .seed = 5}), 2), expected);
}

TEST(SamplePlan, LastStepIsShortAndPositionsCountSamples) {
  const SamplePlan plan(SampleSet(10), {.global_batch = 4});
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_EQ(plan.step_plan(1).samples.size(), 4u);
  EXPECT_EQ(plan.step_plan(2).samples.size(), 2u);
  EXPECT_EQ(plan.step_plan(1).samples_end, 8);
  EXPECT_EQ(plan.step_plan(2).samples_end, 10);
  EXPECT_EQ(plan.step_plan(3).samples_end, 14);
  EXPECT_DOUBLE_EQ(plan.step_plan(2).epoch, 1.0);
  EXPECT_DOUBLE_EQ(plan.step_plan(3).epoch, 4.0 / 3);
}

TEST(SamplePlan, DropLastLeavesOutOnlyTheIncompleteBatch) {
  const SampleSet set(10);
  const SamplePlan all(set, {.global_batch = 4, .seed = 9});
  const SamplePlan dropped(set, {.global_batch = 4, .seed = 9, .drop_last = true});
  EXPECT_EQ(dropped.steps_per_epoch(), 2);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    auto kept = samples_of_epoch(all, epoch);
    kept.resize(8);
    EXPECT_EQ(samples_of_epoch(dropped, epoch), kept);
  }
  EXPECT_EQ(dropped.step_plan(2).samples_end, 12);
  const SamplePlan even(set, {.global_batch = 5, .drop_last = true});
  EXPECT_EQ(even.steps_per_epoch(), 2);
}

TEST(SamplePlan, DropLastOfEverythingIsRefused) {
  const auto message =
      refusal<UserError>([] { SamplePlan(SampleSet(3), {.global_batch = 4, .drop_last = true}); });
  EXPECT_PRED2(contains, message, "3 samples");
}

}  // namespace
}  // namespace skein::data
