// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/ordered_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace skein {
namespace {

// Hands out 0, 1, … below `count`.
auto numbers(int count) {
  return
      [next = 0, count]() mutable { return next < count ? std::optional(next++) : std::nullopt; };
}

TEST(OrderedWork, ResultsComeInTheOrderOfTheItems) {
  for (const int threads : {1, 2, 7}) {
    // Early items wait for later ones, so that results are ready out of order.
    std::atomic<int> begun = 0;
    const auto work = [&](int item) {
      ++begun;
      while (item % 2 == 0 && threads > 1 && begun < std::min(item + 2, 100)) {
        std::this_thread::yield();
      }
      return item * 10;
    };
    OrderedWork<int, int> ordered(numbers(100), work, threads);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(ordered.next(), i * 10);
    EXPECT_EQ(ordered.next(), std::nullopt);
    EXPECT_EQ(ordered.next(), std::nullopt) << "the end stays";
  }
}

TEST(OrderedWork, AFailureComesAtItsPlace) {
  const auto work = [](int item) {
    if (item >= 5) throw std::runtime_error(std::to_string(item));
    return item;
  };
  OrderedWork<int, int> ordered(numbers(100), work, 3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ordered.next(), i);
  try {
    ordered.next();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "5");
  }
}

TEST(OrderedWork, OnlyAFewItemsAreUnderWayAndTheRestMayBeLeft) {
  std::atomic<int> begun = 0;
  OrderedWork<int, int> ordered(numbers(1'000'000), [&](int item) { return ++begun, item; }, 2);
  EXPECT_EQ(ordered.next(), 0);
  EXPECT_LE(begun, 2 * 3 + 1);
}

}  // namespace
}  // namespace skein
