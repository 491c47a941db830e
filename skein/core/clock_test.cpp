// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace skein {
namespace {

TEST(Clock, StandsStillWhileFrozenAndGoesOnFromThere) {
  Clock::freeze();
  const auto frozen = Clock::now();
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(Clock::now(), frozen);
  const auto slept = std::chrono::steady_clock::now() - begin;
  Clock::thaw();
  const auto thawed = Clock::now();
  EXPECT_GE(thawed, frozen);
  EXPECT_LE(thawed - frozen, std::chrono::steady_clock::now() - begin - slept);
  while (Clock::now() == thawed) continue;
}

TEST(Clock, LeavesOutWhatIsCounted) {
  static std::atomic<int64_t> paused = 0;
  Clock::count_pauses_in(paused);
  const auto before = Clock::now();
  paused -= std::chrono::nanoseconds(std::chrono::hours(1)).count();
  EXPECT_GE(Clock::now() - before, std::chrono::hours(1));
  paused = 0;
  EXPECT_LT(Clock::now() - before, std::chrono::hours(1));
}

}  // namespace
}  // namespace skein
