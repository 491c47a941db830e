// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/moments.h"

#include <gtest/gtest.h>

#include <cmath>

namespace skein::algorithms {
namespace {

const std::vector<double> kValues{3, -1.5, 0.25, 7, 7, -2, 0.125, 11.5, 4};
const std::vector<int64_t> kLengths{2, 1, 0, 4, 2};

// By their definitions, over what is not masked out.
Moments plain_moments(const std::vector<double>& values) {
  Moments moments{.count = static_cast<double>(values.size())};
  for (const double value : values) moments.mean += value / moments.count;
  for (const double value : values) moments.squares += std::pow(value - moments.mean, 2);
  return moments;
}

void expect_same(const Moments& found, const Moments& wanted) {
  EXPECT_EQ(found.count, wanted.count);
  EXPECT_NEAR(found.mean, wanted.mean, 1e-12);
  EXPECT_NEAR(found.squares, wanted.squares, 1e-10);
}

TEST(Moments, JoinCompletions) {
  const auto parts = completion_moments(kValues, kLengths);
  ASSERT_EQ(parts.size(), 5U);
  expect_same(joined(parts), plain_moments(kValues));
  expect_same(parts[3], plain_moments({7, 7, -2, 0.125}));
  const auto masked = completion_moments(kValues, kLengths, std::vector<double>{1, 1, 1, 0, 1});
  expect_same(joined(masked), plain_moments({3, -1.5, 0.25, 11.5, 4}));
  EXPECT_EQ(joined({}).variance(), 0);
}

// Two ranks have the completions of one; gathered in the order of samples they give the same bits.
TEST(Moments, DoNotDependOnTheSplit) {
  const auto whole = joined(completion_moments(kValues, kLengths));
  const std::span<const double> values(kValues);
  const std::span<const int64_t> lengths(kLengths);
  auto parts = completion_moments(values.first(3), lengths.first(3));
  const auto others = completion_moments(values.subspan(3), lengths.subspan(3));
  parts.insert(parts.end(), others.begin(), others.end());
  const auto split = joined(parts);
  EXPECT_EQ(split.mean, whole.mean);
  EXPECT_EQ(split.squares, whole.squares);
}

TEST(Moments, AreExactFarFromZero) {
  Moments moments;
  for (const double value : {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16}) moments.add(value);
  EXPECT_NEAR(moments.variance(), 30, 1e-6);
}

TEST(Moments, Whiten) {
  const auto moments = plain_moments(kValues);
  double variance = 0;
  for (const double value : kValues) variance += std::pow(value - moments.mean, 2) / 8;
  for (const auto shift : {Shift::kToZero, Shift::kKeepMean}) {
    auto values = kValues;
    whiten(values, joined(completion_moments(kValues, kLengths)), shift);
    for (size_t i = 0; i < values.size(); ++i) {
      const double kept = shift == Shift::kKeepMean ? moments.mean : 0;
      const double wanted = (kValues[i] - moments.mean) / std::sqrt(variance + 1e-8) + kept;
      EXPECT_NEAR(values[i], wanted, 1e-12);
    }
  }
  std::vector<double> one{5};
  whiten(one, moments_of(one));
  EXPECT_EQ(one, std::vector<double>{0});
}

}  // namespace
}  // namespace skein::algorithms
