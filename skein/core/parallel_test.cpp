// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace skein {
namespace {

TEST(ForEachIndex, TakesEveryIndexOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> seen(1000);
    for_each_index(1000, threads, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

// Each index waits for the other two, so one thread could not have taken two of them.
TEST(ForEachIndex, RunsOnAsManyThreadsAsAsked) {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  std::atomic<int> met = 0;
  for_each_index(3, 3, [&](int64_t) {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    if (changed.wait_for(lock, std::chrono::seconds(60), [&] { return inside == 3; })) ++met;
  });
  EXPECT_EQ(met, 3);
}

TEST(ForEachIndex, ThrowsWhatAnIndexThrew) {
  const auto work = [](int64_t i) {
    if (i == 3) throw std::runtime_error("index 3");
  };
  EXPECT_THROW(for_each_index(100, 2, work), std::runtime_error);
}

}  // namespace
}  // namespace skein
