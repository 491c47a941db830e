// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/packing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/core/random.h"

namespace skein::data {
namespace {

using Lengths = std::vector<int64_t>;

// Drawn evenly from least to most.
Lengths drawn(int64_t count, int64_t least, int64_t most, uint64_t seed) {
  Lengths lengths;
  for (int64_t i = 0; i < count; ++i) {
    const auto word = random::philox(seed, static_cast<uint64_t>(i)).word[0];
    lengths.push_back(least + static_cast<int64_t>(word) % (most - least + 1));
  }
  return lengths;
}

// Every item in exactly one group; returns the largest sum of a group.
int64_t largest_sum(const Groups& groups, const Lengths& lengths) {
  auto items = groups.items;
  std::ranges::sort(items);
  EXPECT_EQ(items.size(), lengths.size());
  for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i], static_cast<int32_t>(i));
  int64_t largest = 0;
  for (int64_t i = 0; i < groups.count(); ++i) {
    int64_t sum = 0;
    for (const int32_t item : groups.group(i)) sum += lengths[static_cast<size_t>(item)];
    EXPECT_GT(sum, 0);
    largest = std::max(largest, sum);
  }
  return largest;
}

double fill(const Groups& groups, const Lengths& lengths, int64_t capacity) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  return static_cast<double>(sum) / static_cast<double>(groups.count() * capacity);
}

TEST(BestFit, TakesTheFullestPackThatHasRoom) {
  const Lengths lengths = {2, 6, 5, 3, 4, 1};
  const auto groups = best_fit(lengths, 8);
  // 6 | 5 | 6 5 | 4 into none: 6, 5, 4 | 3 fills 5 to 8 | 2 fills 6 to 8 | 1 goes to 4.
  EXPECT_EQ(groups.items, (std::vector<int32_t>{1, 0, 2, 3, 4, 5}));
  EXPECT_EQ(groups.ends, (std::vector<int32_t>{2, 4, 6}));
  EXPECT_EQ(best_fit({}, 8).count(), 0);
  EXPECT_EQ(best_fit(Lengths{8, 8}, 8).count(), 2);
}

TEST(BestFit, FillsPacksOf4096WithLengthsFrom256To2047) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    for (const int64_t count : {1 << 14, 4000}) {
      const auto lengths = drawn(count, 256, 2047, seed);
      const auto groups = best_fit(lengths, 4096);
      EXPECT_LE(largest_sum(groups, lengths), 4096);
      EXPECT_GE(fill(groups, lengths, 4096), 0.97);
    }
  }
}

TEST(BestFit, EveryItemOnceWhateverTheLengths) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto lengths = drawn(1 + 37 * static_cast<int64_t>(seed), 1, 64, seed);
    EXPECT_LE(largest_sum(best_fit(lengths, 64), lengths), 64);
  }
}

TEST(SortedRuns, LongestFirstAndCut) {
  const auto groups = sorted_runs(Lengths{3, 9, 3, 7, 1}, 2);
  EXPECT_EQ(groups.items, (std::vector<int32_t>{1, 3, 0, 2, 4}));
  EXPECT_EQ(groups.ends, (std::vector<int32_t>{2, 4, 5}));
  EXPECT_EQ(sorted_runs(Lengths{1, 2}, 2).ends, std::vector<int32_t>{2});
  EXPECT_EQ(sorted_runs({}, 2).count(), 0);
}

}  // namespace
}  // namespace skein::data
