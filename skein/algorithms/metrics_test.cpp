// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/metrics.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace skein::algorithms {
namespace {

using Kind = Metric::Kind;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const std::vector<Metric> kMetrics{{"mean"}, {"least", Kind::kLeast}, {"most", Kind::kMost}};

MetricValues values_of(std::initializer_list<double> values, std::initializer_list<double> counts) {
  return {at::tensor(values, at::kDouble), at::tensor(counts, at::kDouble)};
}

NamedNumbers of_ranks(const std::vector<MetricSums>& ranks) {
  const int size = static_cast<int>(ranks.size());
  std::vector<double> sum;
  for (int rank = 0; rank < size; ++rank) {
    const auto share = ranks[static_cast<size_t>(rank)].share(rank, size);
    sum.resize(share.size());
    for (size_t i = 0; i < share.size(); ++i) sum[i] += share[i];
  }
  return ranks[0].numbers(sum, size);
}

// Nine numbers, split in several ways.
TEST(MetricSums, AreAlikeForEverySplit) {
  const NamedNumbers expected{{"mean", 5}, {"least", 1}, {"most", 9}};
  for (const int ranks : {1, 2, 4}) {
    std::vector<MetricSums> sums(static_cast<size_t>(ranks), MetricSums(kMetrics));
    for (int i = 0; i < 9; ++i) {
      const double x = i + 1;
      sums[static_cast<size_t>(i % ranks)].add(values_of({x, x, x}, {1, 1, 1}));
    }
    EXPECT_EQ(of_ranks(sums), expected) << ranks;
  }
}

TEST(MetricSums, WhatWasNotCountedIsNotLookedAt) {
  std::vector<MetricSums> ranks(3, MetricSums(kMetrics));
  ranks[1].add(values_of({kNan, -70, 70}, {0, 0, 0}));
  ranks[1].add(values_of({6, 2, 4}, {2, 2, 2}));
  ranks[1].add(values_of({kNan, -80, 80}, {0, 0, 0}));
  EXPECT_EQ(of_ranks(ranks), (NamedNumbers{{"mean", 3}, {"least", 2}, {"most", 4}}));
  const std::vector<MetricSums> nothing(2, MetricSums(kMetrics));
  EXPECT_EQ(of_ranks(nothing), NamedNumbers{});
}

TEST(MetricSums, StepsThatDoNotCountAreLeftOut) {
  const auto yes = at::ones({}, at::kBool), no = at::zeros({}, at::kBool);
  MetricSums log(kMetrics), good(kMetrics), bad(kMetrics);
  good.add(values_of({4, 4, 4}, {1, 1, 1}));
  bad.add(values_of({kNan, -1, 99}, {1, 1, 1}));
  log.add(bad, no);
  log.add(good, yes);
  log.add(bad, no);
  EXPECT_EQ(of_ranks({log}), (NamedNumbers{{"mean", 4}, {"least", 4}, {"most", 4}}));
}

TEST(MetricSums, WithoutMetricsThereIsNothing) {
  MetricSums none;
  none.add(MetricValues{});
  EXPECT_TRUE(none.share(0, 3).empty());
  EXPECT_TRUE(none.numbers({}, 3).empty());
}

}  // namespace
}  // namespace skein::algorithms
