// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/eval_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "skein/core/error.h"
#include "skein/data/sample_plan.h"

namespace skein::data {
namespace {

std::vector<int64_t> all_of(const SampleSet& set) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < set.count(); ++i) samples.push_back(set.sample(i));
  return samples;
}

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(SampleSet, TheTwoSidesAreDisjointAndComplete) {
  for (const int64_t count : {2, 3, 10, 101}) {
    for (const double percent : {0.01, 5.0, 50.0, 99.9}) {
      const SampleSet kept(count, percent, 3, Holdout::kKept);
      const SampleSet held(count, percent, 3, Holdout::kHeldOut);
      EXPECT_GE(kept.count(), 1);
      EXPECT_GE(held.count(), 1);
      auto both = all_of(kept);
      std::ranges::copy(all_of(held), std::back_inserter(both));
      std::sort(both.begin(), both.end());
      EXPECT_EQ(both, first_numbers(count));
    }
  }
  EXPECT_EQ(SampleSet(100, 5, 3, Holdout::kHeldOut).count(), 5);
}

TEST(SampleSet, TheSeedChooses) {
  const auto chosen = all_of(SampleSet(100, 10, 1, Holdout::kHeldOut));
  EXPECT_EQ(all_of(SampleSet(100, 10, 1, Holdout::kHeldOut)), chosen);
  EXPECT_NE(all_of(SampleSet(100, 10, 2, Holdout::kHeldOut)), chosen);
}

TEST(SampleSet, OneSampleCannotBeDivided) {
  EXPECT_THROW(SampleSet(1, 5, 1, Holdout::kKept), UserError);
}

TEST(SampleSet, FirstOfAllAreThoseInFront) {
  const SampleSet all(10);
  EXPECT_EQ(all_of(all.first(3)), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(all.first(99).count(), 10);
}

TEST(SampleSet, HeldOutSamplesAreNeverTrainedOn) {
  const auto held = all_of(SampleSet(50, 20, 9, Holdout::kHeldOut));
  const SamplePlan plan(SampleSet(50, 20, 9, Holdout::kKept), {.global_batch = 7, .seed = 9});
  for (int64_t step = 0; step < 3 * plan.steps_per_epoch(); ++step) {
    for (const int64_t sample : plan.step_plan(step).samples) {
      EXPECT_EQ(std::ranges::count(held, sample), 0) << sample;
    }
  }
}

TEST(EvalPlan, EverySampleOnceInOrderForEveryNumberOfRanks) {
  for (const int64_t count : {1, 5, 12, 13}) {
    const SampleSet set(count);
    for (int64_t size = 1; size <= 5; ++size) {
      for (const int64_t per_device : {1, 3, 8}) {
        const EvalPlan plan(set, per_device, size);
        std::vector<int64_t> samples;
        for (int64_t k = 0; k < plan.num_batches(); ++k) {
          for (int64_t rank = 0; rank < size; ++rank) {
            const auto part = plan.samples(k, rank);
            EXPECT_LE(part.size(), static_cast<size_t>(per_device));
            samples.insert(samples.end(), part.begin(), part.end());
          }
        }
        EXPECT_EQ(samples, first_numbers(count));
      }
    }
  }
}

TEST(SamplePlan, StepsAreFoundByTheirPosition) {
  const SampleSet set(10);
  for (const int64_t global_batch : {1, 2, 3, 4, 10, 12}) {
    const SamplePlan plan(set, {.global_batch = global_batch});
    EXPECT_EQ(plan.step_of(0), 0);
    for (int64_t step = 0; step < 25; ++step) {
      EXPECT_EQ(plan.step_of(plan.step_plan(step).samples_end), step + 1);
    }
  }
}

TEST(SamplePlan, AChangedGlobalBatchContinuesOrIsRefused) {
  const SamplePlan four(SampleSet(10), {.global_batch = 4});
  const SamplePlan two(SampleSet(10), {.global_batch = 2});
  const SamplePlan three(SampleSet(10), {.global_batch = 3});
  const int64_t position = four.step_plan(3).samples_end;  // 4 into the second epoch
  EXPECT_EQ(position, 14);
  EXPECT_EQ(two.step_of(position), 7);
  EXPECT_THROW(three.step_of(position), UserError);
  EXPECT_EQ(three.step_of(10), 4);
  const SamplePlan dropping(SampleSet(10), {.global_batch = 4, .drop_last = true});
  EXPECT_EQ(dropping.step_of(4), 1);
  EXPECT_EQ(dropping.step_of(8), 2);
  EXPECT_THROW(dropping.step_of(14), UserError);
}

}  // namespace
}  // namespace skein::data
