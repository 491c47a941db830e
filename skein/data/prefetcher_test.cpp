// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

namespace skein::data {
namespace {

TEST(Prefetcher, AnswersEveryStepInAnyOrder) {
  Prefetcher<std::unique_ptr<int64_t>> squares(
      [](int64_t step) { return std::make_unique<int64_t>(step * step); }, 3);
  for (const int64_t step : {0, 1, 2, 3, 4, 9, 10, 2, 2, 3, 0, 100}) {
    EXPECT_EQ(*squares.get(step), step * step);
  }
}

TEST(Prefetcher, StaysWithinItsDepth) {
  std::atomic<int64_t> highest = -1;
  Prefetcher<int64_t> steps(
      [&](int64_t step) {
        highest = std::max(highest.load(), step);
        return step;
      },
      2);
  for (int64_t step = 0; step < 50; ++step) {
    EXPECT_EQ(steps.get(step), step);
    EXPECT_LE(highest, step + 2 + 1);  // two are kept, and one more may have been begun
  }
}

TEST(Prefetcher, FailuresReachTheCallerAtTheirStep) {
  Prefetcher<int64_t> steps(
      [](int64_t step) {
        if (step == 2) throw std::runtime_error("step two");
        return step;
      },
      4);
  EXPECT_EQ(steps.get(0), 0);
  EXPECT_EQ(steps.get(1), 1);
  EXPECT_THROW(steps.get(2), std::runtime_error);
  EXPECT_THROW(steps.get(2), std::runtime_error);
  EXPECT_EQ(steps.get(3), 3);
}

TEST(Prefetcher, EndsWhetherOrNotItWasUsed) {
  const Prefetcher<int64_t> unused([](int64_t step) { return step; }, 2);
  Prefetcher<int64_t> used([](int64_t step) { return step; }, 2);
  used.get(7);
}

}  // namespace
}  // namespace skein::data
