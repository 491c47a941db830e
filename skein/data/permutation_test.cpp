// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace skein::data {
namespace {

std::vector<uint64_t> order_of_epoch(uint64_t n, uint64_t seed, uint64_t epoch) {
  std::vector<uint64_t> order(n);
  for (uint64_t i = 0; i < n; ++i) order[i] = permuted(i, n, epoch_key(seed, epoch));
  return order;
}

TEST(Permutation, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {127, 128, 129, 1000, 1023, 1024, 1025, 4096, 4097, 65536, 100003});
  for (const uint64_t n : sizes) {
    auto order = order_of_epoch(n, 42, 3);
    std::sort(order.begin(), order.end());
    for (uint64_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i) << "n = " << n;
  }
}

TEST(Permutation, StaysInsideHugeRanges) {
  for (const uint64_t n : {(uint64_t{1} << 40) + 1, uint64_t{1} << 63}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t place = permuted(n - 1 - i, n, 7);
      EXPECT_LT(place, n);
      EXPECT_TRUE(seen.insert(place).second);
    }
  }
}

TEST(Permutation, DiffersByEpochAndSeedAndIsAShuffle) {
  const auto first = order_of_epoch(1000, 42, 0);
  EXPECT_EQ(first, order_of_epoch(1000, 42, 0));
  for (const auto& other : {order_of_epoch(1000, 42, 1), order_of_epoch(1000, 43, 0)}) {
    int64_t same = 0;
    for (size_t i = 0; i < 1000; ++i) same += first[i] == other[i];
    EXPECT_LT(same, 20);  // one is expected of independent shuffles
  }
}

// Saved positions mean nothing if this changes: a release may not alter the order.
TEST(Permutation, OrderIsFrozen) {
  EXPECT_EQ(order_of_epoch(8, 42, 0), (std::vector<uint64_t>{2, 1, 3, 6, 7, 0, 4, 5}));
}

TEST(Permutation, SmallSetsTakeEveryOrder) {
  std::map<std::vector<uint64_t>, int> counts;
  for (uint64_t epoch = 0; epoch < 600; ++epoch) ++counts[order_of_epoch(3, 1, epoch)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_GT(count, 50);  // 100 expected
}

TEST(Permutation, CanBeUndone) {
  for (const uint64_t n : {1, 2, 3, 5, 64, 100, 1000}) {
    for (uint64_t i = 0; i < n; ++i) {
      EXPECT_EQ(unpermuted(permuted(i, n, 11), n, 11), i);
      EXPECT_EQ(permuted(unpermuted(i, n, 11), n, 11), i);
    }
  }
  const uint64_t n = uint64_t{1} << 63;
  EXPECT_EQ(unpermuted(permuted(n - 5, n, 3), n, 3), n - 5);
}

}  // namespace
}  // namespace skein::data
