// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/thread_team.h"

#include <gtest/gtest.h>

#include <numeric>

namespace skein::optim {
namespace {

TEST(ThreadTeam, EveryIndexIsWorkedOnOnceInEveryLoop) {
  for (const int threads : {1, 2, 5}) {
    ThreadTeam team(threads);
    for (int64_t count = 0; count < 300; ++count) {
      std::vector<int> seen(static_cast<size_t>(count), 0);
      team.for_each_index(count, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
      ASSERT_EQ(std::accumulate(seen.begin(), seen.end(), 0), count);
      ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), count);
    }
  }
}

TEST(ThreadTeam, OneThatNeverWorkedEnds) { ThreadTeam team(4); }

}  // namespace
}  // namespace skein::optim
