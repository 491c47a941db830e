// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/decode/sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "skein/ops/decode/sampling_kernel.h"

namespace skein::ops {
namespace {

const std::vector<double> kLogits{0.5, 2, -1, 1, 1.5, -3};

struct Key {
  uint64_t seed = 0, step = 0, prompt = 0, sample = 0, position = 0;
};

at::Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values); }

// `count` rows of the same logits, of samples 0, 1, …
Drawn sample_rows(const at::Tensor& logits, const SamplingOptions& options, int64_t count,
                  const Key& key = {}) {
  std::vector<int64_t> keys, samples, positions;
  for (int64_t i = 0; i < count; ++i) {
    keys.push_back(static_cast<int64_t>(draw_key(key.seed, key.step, key.prompt)));
    samples.push_back(static_cast<int64_t>(key.sample) + i);
    positions.push_back(static_cast<int64_t>(key.position));
  }
  return sample(logits.expand({count, -1}), options,
                {numbers(keys), numbers(samples), numbers(positions)});
}

int64_t pick_one(const SamplingOptions& options, const std::vector<double>& logits,
                 const Key& key = {}) {
  return sample_rows(at::tensor(logits), options, 1, key).tokens.item<int64_t>();
}

std::map<int64_t, double> frequencies(const SamplingOptions& options, int64_t draws) {
  std::map<int64_t, double> found;
  const auto tokens = sample_rows(at::tensor(kLogits), options, draws).tokens;
  for (int64_t i = 0; i < draws; ++i) {
    found[tokens[i].item<int64_t>()] += 1.0 / static_cast<double>(draws);
  }
  return found;
}

std::set<int64_t> picked(const SamplingOptions& options) {
  std::set<int64_t> found;
  for (const auto& [token, share] : frequencies(options, 5000)) found.insert(token);
  return found;
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(pick_one({.temperature = 0}, kLogits), 1);
  EXPECT_EQ(pick_one({.temperature = 0}, {0, 3, 3}), 1);
}

TEST(Sampling, DrawsFromTheSoftmaxAtItsTemperature) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0;
    for (const auto logit : kLogits) total += std::exp(logit / temperature);
    constexpr int64_t kDraws = 100000;
    auto found = frequencies({.temperature = temperature}, kDraws);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(kLogits[i] / temperature) / total;
      EXPECT_NEAR(found[static_cast<int64_t>(i)], p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-6)
          << i << " " << temperature;
    }
  }
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  EXPECT_EQ(picked({.top_k = 1}), (std::set<int64_t>{1}));
  EXPECT_EQ(picked({.top_k = 3}), (std::set<int64_t>{1, 3, 4}));
  EXPECT_EQ(picked({.temperature = 5, .top_k = 100}).size(), 6U);
}

TEST(Sampling, TopPKeepsTheShortestPrefixThatHasTheMass) {
  // Probabilities of 1, 4, 3, 0 are 0.44, 0.27, 0.16, 0.099.
  EXPECT_EQ(picked({.top_p = 0.01}), (std::set<int64_t>{1}));
  EXPECT_EQ(picked({.top_p = 0.5}), (std::set<int64_t>{1, 4}));
  EXPECT_EQ(picked({.top_p = 0.72}), (std::set<int64_t>{1, 3, 4}));
  // After top-k the mass is that of what top-k kept: 0.44 of 0.71 is 0.62.
  EXPECT_EQ(picked({.top_k = 2, .top_p = 0.6}), (std::set<int64_t>{1}));
}

TEST(Sampling, MinPIsRelativeToTheLikeliest) {
  EXPECT_EQ(picked({.min_p = 0.5}), (std::set<int64_t>{1, 4}));  // e^-0.5 = 0.61, e^-1 = 0.37
  EXPECT_EQ(picked({.min_p = 0.3}), (std::set<int64_t>{1, 3, 4}));
  EXPECT_EQ(picked({.top_p = 0.5, .min_p = 0.3}), (std::set<int64_t>{1, 4}));
}

// Those as likely as the last one stay, as in transformers.
TEST(Sampling, TopKOfALargeVocabularyIsThatOfASort) {
  std::vector<double> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = std::sin(static_cast<double>(i * i % 1013));  // with ties
  }
  auto sorted = logits;
  std::ranges::sort(sorted, std::greater());
  for (const int64_t k : {1, 7, 500, 4999}) {
    const double least = sorted[static_cast<size_t>(k) - 1];
    const auto tokens =
        sample_rows(at::tensor(logits), {.temperature = 100, .top_k = k}, 3000).tokens;
    double lowest = 1;
    for (int64_t i = 0; i < tokens.numel(); ++i) {
      lowest = std::min(lowest, logits[static_cast<size_t>(tokens[i].item<int64_t>())]);
    }
    EXPECT_GE(static_cast<float>(lowest), static_cast<float>(least)) << k;
    if (k <= 7) {
      EXPECT_EQ(static_cast<float>(lowest), static_cast<float>(least)) << k;
    }
  }
}

// A draw is a point of a line: where the shares of tokens in their order end is known.
TEST(Sampling, ADrawIsAPointOfTheLineOfWeights) {
  double total = 0;
  for (const auto logit : kLogits) total += std::exp(logit);
  for (uint64_t i = 0; i < 300; ++i) {
    const Key key{.seed = 3, .sample = i, .position = 4};
    const auto bits = draw_bits(draw_key(3, 0, 0), i, 5);  // the new token stands behind the last
    const double point = static_cast<double>(bits >> 11) * 0x1p-53;
    double sum = 0;
    int64_t expected = 0;
    for (; expected < 5; ++expected) {
      sum += std::exp(kLogits[static_cast<size_t>(expected)]) / total;
      if (sum > point) break;
    }
    EXPECT_EQ(pick_one({}, kLogits, key), expected) << i;
  }
}

TEST(Sampling, PenaltyMeetsWhatIsSeenAndMarksWhatIsDrawn) {
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 2};
  const auto pick = [&](const std::vector<double>& logits, int64_t seen_token) {
    auto seen = at::zeros({1, static_cast<int64_t>(logits.size())}, at::kByte);
    seen[0][seen_token] = 1;
    const auto zero = numbers({0});
    const auto drawn = sample(at::tensor(logits).unsqueeze(0), options, {zero, zero, zero, seen});
    const auto token = drawn.tokens.item<int64_t>();
    EXPECT_EQ(seen[0][token].item<int>(), 1);
    return token;
  };
  EXPECT_EQ(pick({1.9, 3, -1}, 1), 0);
  EXPECT_EQ(pick({1.4, 3, -1}, 1), 1);
  EXPECT_EQ(pick({-1, -1.5}, 0), 1);
}

TEST(Sampling, DrawsDependOnTheKeyAlone) {
  const auto together = sample_rows(at::tensor(kLogits), {}, 40, {.seed = 5, .position = 2}).tokens;
  for (int64_t i = 0; i < 40; ++i) {
    const Key key{.seed = 5, .sample = static_cast<uint64_t>(i), .position = 2};
    EXPECT_EQ(together[i].item<int64_t>(), pick_one({}, kLogits, key));
  }
  const auto bits = [](const Key& key) {
    return draw_bits(draw_key(key.seed, key.step, key.prompt), key.sample, key.position);
  };
  const Key key{5, 0, 0, 1, 2};
  EXPECT_NE(bits(key), bits({6, 0, 0, 1, 2}));
  EXPECT_NE(bits(key), bits({5, 1, 0, 1, 2}));
  EXPECT_NE(bits(key), bits({5, 0, 1, 1, 2}));
  EXPECT_NE(bits(key), bits({5, 0, 0, 2, 1}));
}

TEST(Sampling, RuledOutTokensAreNeverDrawn) {
  const auto minus = -std::numeric_limits<double>::infinity();
  const auto tokens = sample_rows(at::tensor({minus, 0.0, minus}), {}, 100).tokens;
  EXPECT_TRUE(tokens.eq(1).all().item<bool>());
}

TEST(Sampling, LogProbabilitiesAreOfAllTokensAtTheTemperature) {
  const auto logits = at::tensor(kLogits);
  for (const double temperature : {0.0, 0.7, 1.0}) {
    const auto drawn =
        sample_rows(logits, {.temperature = temperature, .top_k = 3, .log_probs = true}, 20);
    const auto all = at::log_softmax(logits / (temperature == 0 ? 1 : temperature), 0);
    const auto expected = all.index_select(0, drawn.tokens);
    EXPECT_LT((drawn.log_probs - expected).abs().max().item<double>(), 1e-12) << temperature;
  }
}

TEST(Sampling, LogitsThatAreNoNumbersAreTold) {
  const auto log_prob = [](const std::vector<double>& logits, double temperature) {
    return sample_rows(at::tensor(logits), {.temperature = temperature}, 1)
        .log_probs.item<double>();
  };
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_TRUE(std::isnan(log_prob({0, std::nan("")}, temperature)));
    EXPECT_TRUE(std::isnan(log_prob({0, HUGE_VAL}, temperature)));
    EXPECT_TRUE(std::isnan(log_prob({-HUGE_VAL, -HUGE_VAL}, temperature)));
    EXPECT_FALSE(std::isnan(log_prob({0, -HUGE_VAL}, temperature)));
  }
}

TEST(Sampling, NarrowLogitsAreThoseNumbers) {
  const auto logits = at::tensor(kLogits);
  const auto wide = sample_rows(logits.to(at::kBFloat16).to(at::kDouble), {}, 200).tokens;
  EXPECT_TRUE(wide.equal(sample_rows(logits.to(at::kBFloat16), {}, 200).tokens));
  EXPECT_TRUE(wide.equal(sample_rows(logits.to(at::kBFloat16).to(at::kFloat), {}, 200).tokens));
}

}  // namespace
}  // namespace skein::ops
