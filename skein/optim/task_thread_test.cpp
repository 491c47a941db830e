// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/task_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

namespace skein::optim {
namespace {

TEST(TaskThread, RunsInOrderBesideTheGiver) {
  TaskThread thread;
  std::promise<void> gate;
  std::vector<int> order;
  thread.run({[&] {
    gate.get_future().wait();
    order.push_back(1);
  }});
  const auto second = thread.run({[&] { order.push_back(2); }});
  EXPECT_FALSE(thread.has_ended(second));
  gate.set_value();
  thread.wait(second);
  EXPECT_TRUE(thread.has_ended(second));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  thread.finish();
}

// What the next forward needs first has come last out of backward.
TEST(TaskThread, OfAGroupTheLowestPlaceThatIsReadyGoesFirst) {
  TaskThread thread;
  std::promise<void> gate;
  std::vector<int> order;
  std::atomic<bool> third_is_ready{false};
  const auto give = [&](int name, uint64_t group, size_t place,
                        std::function<bool()> is_ready = {}) {
    return thread.run(
        {[&order, name] { order.push_back(name); }, group, place, std::move(is_ready)});
  };
  thread.run({[&] { gate.get_future().wait(); }, 0, 0});
  give(1, 1, 9);
  const auto never = give(2, 1, 1, [] { return false; });
  give(3, 1, 2, [&] { return third_is_ready.load(); });
  const auto next_group = give(4, 2, 0);
  give(5, 2, 0);
  third_is_ready = true;
  gate.set_value();
  thread.finish();
  EXPECT_EQ(order, (std::vector<int>{3, 1, 2, 4, 5}));
  EXPECT_TRUE(thread.has_ended(never) && thread.has_ended(next_group));
}

TEST(TaskThread, AFailureIsThrownToWhoWaits) {
  TaskThread thread;
  bool ran = false;
  thread.run({[] { throw std::runtime_error("first"); }});
  const auto later = thread.run({[&] { ran = true; }});
  EXPECT_THROW(thread.wait(later), std::runtime_error);
  EXPECT_THROW(thread.finish(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(TaskThread, WhatATaskHoldsIsGoneAtItsEnd) {
  TaskThread thread;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  thread.run({[held = std::move(held)] {}});
  thread.finish();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace skein::optim
