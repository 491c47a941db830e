// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/task_thread.h"

#include <gtest/gtest.h>

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
  thread.run([&] {
    gate.get_future().wait();
    order.push_back(1);
  });
  const auto second = thread.run([&] { order.push_back(2); });
  EXPECT_FALSE(thread.has_ended(second));
  gate.set_value();
  thread.wait(second);
  EXPECT_TRUE(thread.has_ended(second));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  thread.finish();
}

TEST(TaskThread, AFailureIsThrownToWhoWaits) {
  TaskThread thread;
  bool ran = false;
  thread.run([] { throw std::runtime_error("first"); });
  const auto later = thread.run([&] { ran = true; });
  EXPECT_THROW(thread.wait(later), std::runtime_error);
  EXPECT_THROW(thread.finish(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(TaskThread, WhatATaskHoldsIsGoneAtItsEnd) {
  TaskThread thread;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  thread.run([held = std::move(held)] {});
  thread.finish();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace skein::optim
