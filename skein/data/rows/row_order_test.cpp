// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "skein/core/random.h"
#include "skein/data/sample_plan.h"

namespace skein::data {
namespace {

// Rows that are nothing but long.
class LengthSource final : public SampleSource {
 public:
  LengthSource(int64_t count, int64_t least, int64_t most)
      : count_(count), least_(least), most_(most) {}

  int64_t count() const override { return count_; }
  int64_t length(int64_t sample) const override {
    const auto word = random::philox(3, static_cast<uint64_t>(sample)).word[0];
    return least_ + static_cast<int64_t>(word) % (most_ - least_ + 1);
  }
  int64_t num_targets(int64_t sample) const override { return length(sample) - 1; }
  void read(int64_t, std::span<int64_t>, std::span<int64_t>) const override {}

 private:
  int64_t count_, least_, most_;
};

using Packing = std::vector<std::vector<int64_t>>;

Packing packs_of(const RowOrder& order, int64_t epoch) {
  Packing packs(static_cast<size_t>(order.count(epoch)));
  for (size_t i = 0; i < packs.size(); ++i) {
    order.append(epoch, static_cast<int64_t>(i), packs[i]);
  }
  return packs;
}

void expect_every_sample_once(const Packing& packs, const SampleSet& set) {
  std::multiset<int64_t> seen, expected;
  for (const auto& pack : packs) seen.insert(pack.begin(), pack.end());
  for (int64_t i = 0; i < set.count(); ++i) expected.insert(set.sample(i));
  EXPECT_EQ(seen, expected);
}

TEST(RowOrder, PacksEveryRowOncePerEpochAndNoPackTooFull) {
  const auto source = std::make_shared<LengthSource>(1000, 1, 64);
  for (const auto& set : {SampleSet(1000), SampleSet::divided(1000, 100, 5, Holdout::kKept)}) {
    for (const int64_t window : {1, 7, 64, 1000, 5000}) {
      const RowOrder order(lengths_of(source), set, {.seed = 5, .capacity = 64, .window = window});
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        const auto packs = packs_of(order, epoch);
        expect_every_sample_once(packs, set);
        for (const auto& pack : packs) {
          int64_t tokens = 0;
          for (const int64_t sample : pack) tokens += source->length(sample);
          EXPECT_LE(tokens, 64);
        }
      }
    }
  }
}

TEST(RowOrder, PacksOf4096AreFull) {
  const auto source = std::make_shared<LengthSource>(50'000, 256, 2047);
  const RowOrder order(lengths_of(source), SampleSet(50'000), {.seed = 5, .capacity = 4096});
  for (int64_t epoch = 0; epoch < 2; ++epoch) EXPECT_GE(order.fill(epoch), 0.97);
}

TEST(RowOrder, IsAPureFunctionOfSeedAndEpoch) {
  const auto source = std::make_shared<LengthSource>(300, 1, 64);
  const RowOrderOptions options{.seed = 5, .capacity = 64, .window = 50};
  const RowOrder order(lengths_of(source), SampleSet(300), options);
  std::vector<Packing> epochs;
  for (int64_t epoch = 0; epoch < 4; ++epoch) epochs.push_back(packs_of(order, epoch));
  EXPECT_NE(epochs[0], epochs[1]);
  const RowOrder again(lengths_of(source), SampleSet(300), options);
  for (const int64_t epoch : {3, 0, 2}) {  // whatever was asked for before
    for (auto pack = std::ssize(epochs[epoch]) - 1; pack >= 0; pack -= 7) {
      std::vector<int64_t> samples;
      again.append(epoch, pack, samples);
      EXPECT_EQ(samples, epochs[epoch][pack]);
    }
  }
  auto other = options;
  other.seed = 6;
  EXPECT_NE(packs_of(RowOrder(lengths_of(source), SampleSet(300), other), 0), epochs[0]);
}

// A window's packs are made longest row first; they must not be used in that order.
TEST(RowOrder, PacksOfAWindowAreShuffled) {
  const auto source = std::make_shared<LengthSource>(400, 1, 64);
  const RowOrder order(lengths_of(source), SampleSet(400), {.seed = 5, .capacity = 64});
  const auto packs = packs_of(order, 0);
  std::vector<int64_t> longest;
  for (const auto& pack : packs) longest.push_back(source->length(pack[0]));
  EXPECT_FALSE(std::ranges::is_sorted(longest, std::ranges::greater()));
}

TEST(RowOrder, StepsPositionsAndEpochsCountEveryEpochsOwnPacks) {
  const auto source = std::make_shared<LengthSource>(500, 1, 64);
  const auto order = std::make_shared<RowOrder>(
      lengths_of(source), SampleSet(500), RowOrderOptions{.seed = 5, .capacity = 64, .window = 20});
  std::set<int64_t> counts;
  for (int64_t epoch = 0; epoch < 6; ++epoch) counts.insert(order->count(epoch));
  ASSERT_GT(counts.size(), 1u) << "epochs that differ are what this is about";

  const SamplePlan plan(500, order, {.global_batch = 8});
  int64_t step = 0, packs = 0;
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    const int64_t steps = (order->count(epoch) + 7) / 8;
    EXPECT_EQ(plan.epoch_steps().steps(epoch), steps);
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < steps; ++i, ++step) {
      const auto made = plan.step_plan(step);
      EXPECT_EQ(made.epoch_index, epoch);
      EXPECT_EQ(plan.step_of(packs), step);
      packs += made.num_packs();
      EXPECT_EQ(made.samples_end, packs);
      EXPECT_DOUBLE_EQ(made.epoch, static_cast<double>(epoch) + (i + 1.0) / steps);
      EXPECT_EQ(made.num_packs(), i + 1 < steps ? 8 : order->count(epoch) - 8 * (steps - 1));
      seen.insert(seen.end(), made.samples.begin(), made.samples.end());
    }
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 500u);
    EXPECT_EQ(seen.size(), 500u);
    EXPECT_EQ(plan.epoch_steps().total(static_cast<double>(epoch) + 1), step);
  }
  const int64_t half = (plan.epoch_steps().steps(2) + 1) / 2;
  EXPECT_EQ(plan.epoch_steps().total(2.5), plan.epoch_steps().before(2).steps + half);
  const SamplePlan far(500, order, {.global_batch = 8});
  EXPECT_EQ(far.step_plan(step - 1).samples_end, packs) << "asked for the last step first";
}

TEST(RowOrder, RowsGroupedByLengthAreDealtTogether) {
  const auto source = std::make_shared<LengthSource>(5000, 1, 10'000);
  const SampleSet set(5000);
  const RowOrder order(lengths_of(source), set, {.seed = 5, .window = 2048});
  EXPECT_TRUE(order.is_even());
  EXPECT_EQ(order.count(0), 5000);
  const auto packs = packs_of(order, 0);
  expect_every_sample_once(packs, set);
  int64_t apart = 0, longest_first = 0;
  for (size_t i = 0; i + 1 < packs.size(); ++i) {
    ASSERT_EQ(packs[i].size(), 1u);
    const int64_t step = source->length(packs[i][0]) - source->length(packs[i + 1][0]);
    apart += std::abs(step);
    longest_first += step < 0;
  }
  EXPECT_LT(apart / std::ssize(packs), 100) << "of 3,333 in any order";
  EXPECT_GT(longest_first, 5) << "runs are not used longest first";
  EXPECT_NE(packs_of(order, 1), packs);
}

}  // namespace
}  // namespace skein::data
