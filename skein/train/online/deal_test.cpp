// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/deal.h"

#include <gtest/gtest.h>

#include <set>

namespace skein::train {
namespace {

// The completions of every mini-batch, over all ranks and micro-batches.
std::vector<std::vector<int64_t>> dealt(DealOptions options) {
  std::vector<std::vector<int64_t>> mini_batches;
  for (int64_t mini = 0; mini < Deal(options).num_mini_batches(); ++mini) {
    auto& numbers = mini_batches.emplace_back();
    for (options.rank = 0; options.rank < options.size; ++options.rank) {
      const Deal deal(options);
      for (int64_t micro = 0; micro < deal.num_micro_batches(); ++micro) {
        const auto [begin, end] = deal.micro_batch(mini, micro);
        EXPECT_LE(end - begin, options.per_device);
        for (int64_t number = begin; number < end; ++number) numbers.push_back(number);
      }
    }
    options.rank = 0;
  }
  return mini_batches;
}

TEST(Deal, EverySplitTrainsAMiniBatchOnTheSameCompletions) {
  for (const int64_t completions : {48, 47, 25, 24, 23, 1}) {
    const auto one = dealt({.completions = completions, .mini_batches = 2, .per_device = 24});
    int64_t count = 0;
    for (const auto& numbers : one) {
      for (const auto number : numbers) EXPECT_EQ(number, count++);
    }
    EXPECT_EQ(count, completions);
    for (const int size : {1, 2, 3, 4}) {
      for (const int64_t accumulation : {1, 2}) {
        EXPECT_EQ(dealt({.completions = completions,
                         .mini_batches = 2,
                         .per_device = 24 / size / accumulation,
                         .accumulation = accumulation,
                         .size = size}),
                  one)
            << completions << " over " << size << " ranks";
      }
    }
  }
}

TEST(Deal, ARankHasWholeGroupsWhereTheyFit) {
  const Deal deal({.completions = 32, .per_device = 8, .accumulation = 2, .rank = 1, .size = 2});
  EXPECT_EQ(deal.own().front(), 16);
  EXPECT_EQ(deal.own().size(), 16U);
  EXPECT_EQ(deal.micro_batch(0, 1).begin, 24);
}

TEST(Deal, MiniBatchesWithoutACompletionAreLeftOut) {
  const Deal deal({.completions = 5, .mini_batches = 3, .per_device = 4});
  EXPECT_EQ(deal.num_mini_batches(), 2);
  EXPECT_EQ(deal.mini_batch(1).count(), 1);
  const Deal other({.completions = 5, .mini_batches = 3, .per_device = 2, .rank = 1, .size = 2});
  EXPECT_EQ(other.micro_batch(1, 0).count(), 0);
  EXPECT_EQ(other.own(), (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace skein::train
