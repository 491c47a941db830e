// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "skein/core/error.h"

namespace skein::rollout {
namespace {

const std::vector<float> kLogits{0.5F, 2, -1, 1, 1.5F, -3};

int64_t pick_one(const SamplingOptions& options, std::vector<float> logits, DrawKey key = {},
                 const std::vector<int64_t>& seen = {}) {
  return Sampler(options).pick(logits, seen, key);
}

std::map<int64_t, double> frequencies(const SamplingOptions& options, uint64_t draws) {
  Sampler sampler(options);
  std::map<int64_t, double> found;
  for (uint64_t i = 0; i < draws; ++i) {
    auto logits = kLogits;
    found[sampler.pick(logits, {}, {.sample = i, .position = 7})] +=
        1.0 / static_cast<double>(draws);
  }
  return found;
}

std::set<int64_t> picked(const SamplingOptions& options) {
  std::set<int64_t> found;
  for (const auto& [token, share] : frequencies(options, 5000)) found.insert(token);
  return found;
}

TEST(Sampler, TemperatureZeroTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(pick_one({.temperature = 0}, kLogits), 1);
  EXPECT_EQ(pick_one({.temperature = 0}, {0, 3, 3}), 1);
}

TEST(Sampler, DrawsFromTheSoftmaxAtItsTemperature) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0;
    for (const auto logit : kLogits) total += std::exp(static_cast<double>(logit) / temperature);
    constexpr uint64_t kDraws = 200000;
    const auto found = frequencies({.temperature = temperature}, kDraws);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(static_cast<double>(kLogits[i]) / temperature) / total;
      const auto share =
          found.contains(static_cast<int64_t>(i)) ? found.at(static_cast<int64_t>(i)) : 0;
      EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-6) << i << " " << temperature;
    }
  }
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  EXPECT_EQ(picked({.top_k = 1}), (std::set<int64_t>{1}));
  EXPECT_EQ(picked({.top_k = 3}), (std::set<int64_t>{1, 3, 4}));
  EXPECT_EQ(picked({.temperature = 5, .top_k = 100}).size(), 6U);
}

TEST(Sampler, TopPKeepsTheShortestPrefixThatHasTheMass) {
  // Probabilities of 1, 4, 3, 0 are 0.44, 0.27, 0.16, 0.099.
  EXPECT_EQ(picked({.top_p = 0.01}), (std::set<int64_t>{1}));
  EXPECT_EQ(picked({.top_p = 0.5}), (std::set<int64_t>{1, 4}));
  EXPECT_EQ(picked({.top_p = 0.72}), (std::set<int64_t>{1, 3, 4}));
  // After top-k the mass is that of what top-k kept: 0.44 of 0.71 is 0.62.
  EXPECT_EQ(picked({.top_k = 2, .top_p = 0.6}), (std::set<int64_t>{1}));
}

TEST(Sampler, MinPIsRelativeToTheLikeliest) {
  EXPECT_EQ(picked({.min_p = 0.5}), (std::set<int64_t>{1, 4}));  // e^-0.5 = 0.61, e^-1 = 0.37
  EXPECT_EQ(picked({.min_p = 0.3}), (std::set<int64_t>{1, 3, 4}));
  EXPECT_EQ(picked({.top_p = 0.5, .min_p = 0.3}), (std::set<int64_t>{1, 4}));
}

TEST(Sampler, RanksLargeVocabulariesAsASortWould) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = std::sin(static_cast<float>(i * i % 1013));  // with ties
  }
  std::vector<int64_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  double total = 0;
  for (const auto logit : logits) total += std::exp(static_cast<double>(logit));
  for (uint64_t i = 0; i < 200; ++i) {
    const DrawKey key{.sample = i};
    double sum = 0;
    size_t place = 0;
    for (; place < order.size(); ++place) {
      sum += std::exp(static_cast<double>(logits[static_cast<size_t>(order[place])]));
      if (sum > uniform({.seed = 3}, key) * total) break;
    }
    EXPECT_EQ(pick_one({.seed = 3}, logits, key), order[place]);
  }
}

TEST(Sampler, PenaltyDividesPositiveAndMultipliesNegativeLogits) {
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(pick_one(options, {1.9F, 3, -1}, {}, {1}), 0);
  EXPECT_EQ(pick_one(options, {1.4F, 3, -1}, {}, {1}), 1);
  EXPECT_EQ(pick_one(options, {-1, -1.5F}, {}, {0}), 1);
}

TEST(Sampler, DrawsDependOnTheKeyAlone) {
  const SamplingOptions options{.seed = 5};
  Sampler used(options);
  for (uint64_t i = 0; i < 50; ++i) {
    const DrawKey key{.sample = i % 7, .position = i};
    auto logits = kLogits;
    EXPECT_EQ(used.pick(logits, {}, key), pick_one(options, kLogits, key));
  }
  const auto draw = [](uint64_t seed, uint64_t step, const DrawKey& key) {
    return uniform({.seed = seed, .step = step}, key);
  };
  EXPECT_NE(draw(5, 0, {0, 1, 2}), draw(5, 0, {0, 2, 1}));
  EXPECT_NE(draw(5, 0, {0, 1, 2}), draw(5, 0, {1, 0, 2}));
  EXPECT_NE(draw(5, 0, {0, 1, 2}), draw(5, 1, {0, 1, 2}));
  EXPECT_NE(draw(5, 0, {0, 1, 2}), draw(6, 0, {0, 1, 2}));
}

TEST(Sampler, RuledOutTokensAreNeverDrawn) {
  const auto minus = -std::numeric_limits<float>::infinity();
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(pick_one({}, {minus, 0, minus}, {.sample = i}), 1);
}

TEST(Sampler, RefusesBadOptionsAndLogits) {
  EXPECT_THROW(Sampler({.temperature = -1}), UserError);
  EXPECT_THROW(Sampler({.temperature = std::nan("")}), UserError);
  EXPECT_THROW(Sampler({.top_k = -1}), UserError);
  EXPECT_THROW(Sampler({.top_p = 0}), UserError);
  EXPECT_THROW(Sampler({.top_p = 1.1}), UserError);
  EXPECT_THROW(Sampler({.min_p = -0.1}), UserError);
  EXPECT_THROW(Sampler({.repetition_penalty = 0}), UserError);
  EXPECT_THROW(pick_one({}, {0, std::nanf("")}), UserError);
  EXPECT_THROW(pick_one({}, {0, HUGE_VALF}), UserError);
}

}  // namespace
}  // namespace skein::rollout
