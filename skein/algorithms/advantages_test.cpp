// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace skein::algorithms {
namespace {

using config::KlEstimator;
using config::ScaleRewards;
using Numbers = std::vector<double>;

constexpr double kUnscored = std::numeric_limits<double>::quiet_NaN();

void expect_near(const Numbers& found, const Numbers& wanted, double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << i;
}

Numbers random_numbers(size_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Numbers numbers(count);
  for (double& number : numbers) number = normal(engine);
  return numbers;
}

TEST(Advantages, OfGroups) {
  const Numbers rewards{1, 0, 2.5, 0.5, 0.5, -1};  // two groups of three
  const double mean_a = 3.5 / 3, mean_b = 0;
  const auto deviation = [&](size_t first, double mean) {
    double sum = 0;
    for (size_t i = first; i < first + 3; ++i) sum += std::pow(rewards[i] - mean, 2);
    return std::sqrt(sum / 2);
  };
  const double a = deviation(0, mean_a) + 1e-4, b = deviation(3, mean_b) + 1e-4;
  const Numbers leads{1 - mean_a, -mean_a, 2.5 - mean_a, 0.5, 0.5, -1};
  Numbers wanted;
  for (size_t i = 0; i < 6; ++i) wanted.push_back(leads[i] / (i < 3 ? a : b));
  expect_near(group_advantages(rewards, {.size = 3}), wanted);
  expect_near(group_advantages(rewards, {.size = 3, .scale = ScaleRewards::kNone}), leads);

  double squares = 0;
  for (const double reward : rewards) squares += std::pow(reward - 3.5 / 6, 2);
  for (size_t i = 0; i < 6; ++i) wanted[i] = leads[i] / (std::sqrt(squares / 5) + 1e-6);
  expect_near(
      group_advantages(rewards, {.size = 3, .scale = ScaleRewards::kBatch, .epsilon = 1e-6}),
      wanted);
}

TEST(Advantages, OfGroupsWithoutSpreadAreExactlyZero) {
  // The mean of three times 0.1 is not 0.1.
  const Numbers rewards{0.1, 0.1, 0.1, 1, 2, 3, kUnscored, kUnscored, 5};
  for (const auto scale : {ScaleRewards::kGroup, ScaleRewards::kBatch, ScaleRewards::kNone}) {
    const auto found = group_advantages(rewards, {.size = 3, .scale = scale});
    for (const size_t i : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(found[i], 0);
    EXPECT_GT(found[5], 0);
  }
  const auto found = leave_one_out_advantages(rewards, 3);
  for (const size_t i : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(found[i], 0);
  EXPECT_EQ(group_advantages(Numbers{4, 5}, {.size = 1}), (Numbers{0, 0}));
  EXPECT_TRUE(is_all_equal(Numbers{kUnscored, 2, 2}));
  EXPECT_FALSE(is_all_equal(Numbers{2, kUnscored, 3}));
  EXPECT_NEAR(share_of_equal_groups(rewards, 3), 2.0 / 3, 1e-15);
}

TEST(Advantages, LeaveOneOut) {
  expect_near(leave_one_out_advantages(Numbers{1, 0, 2.5, 4, kUnscored, 7}, 3),
              {1 - 1.25, -1.75, 2.5 - 0.5, -3, 0, 3});
}

TEST(Advantages, OfWhatNobodyHasScoredAreZero) {
  const auto found =
      group_advantages(Numbers{1, kUnscored, 4}, {.size = 3, .scale = ScaleRewards::kNone});
  expect_near(found, {-1.5, 0, 1.5});
}

TEST(Scores, FollowTheirRules) {
  expect_near(ruled_scores(Numbers{3, 0.5, -4}, {true, false, false},
                           {.missing_end_penalty = 1, .clip = 2}),
              {2, -0.5, -2});
  expect_near(ruled_scores(Numbers{3, 0.5}, {true, true}, {.missing_end_penalty = 1}), {3, 0.5});
}

// The moments of all that was seen, whichever steps it came in.
TEST(Scores, AreNormalisedByAllThatWasSeen) {
  const Numbers first{1, 4, 2}, second{-3, 0.5, 8, 1};
  ScoreNormaliser normaliser;
  normaliser.normalised(first);
  ScoreNormaliser resumed{normaliser.seen};
  const auto found = resumed.normalised(second);
  const double mean = 13.5 / 7;
  double squares = 0;
  for (const auto& scores : {first, second}) {
    for (const double score : scores) squares += std::pow(score - mean, 2);
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(found[i], (second[i] - mean) / std::sqrt(squares / 6), 1e-6);
  }
}

const std::vector<int64_t> kLengths{4, 1, 0, 7};

TEST(TokenRewards, AreThePenaltyAndTheScoreAtTheEnd) {
  const auto p = random_numbers(12, 1), q = random_numbers(12, 2);
  const Numbers scores{2, -1, 100, kUnscored};
  for (const auto estimator : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
    const auto kl = kl_estimates(p, q, estimator);
    const auto found = token_rewards(scores, kLengths, {.kl = kl, .coefficient = 0.3});
    for (size_t t = 0; t < 12; ++t) {
      const double r = p[t] - q[t];
      const double estimate = estimator == KlEstimator::kK1   ? r
                              : estimator == KlEstimator::kK2 ? r * r / 2
                                                              : std::exp(-r) - 1 + r;
      const double score = t == 3 ? 2 : t == 4 ? -1 : 0;
      EXPECT_NEAR(found[t], score - 0.3 * estimate, 1e-12) << t;
    }
  }
  EXPECT_EQ(token_rewards(scores, kLengths)[3], 2);
  EXPECT_EQ(kl_estimates(Numbers{-1}, Numbers{-90}, KlEstimator::kK1), Numbers{20});
}

TEST(RewardsToGo, AreDiscountedSums) {
  const auto rewards = random_numbers(12, 3);
  Numbers wanted(12);
  size_t first = 0;
  for (const int64_t length : kLengths) {
    const size_t end = first + static_cast<size_t>(length);
    for (size_t t = first; t < end; ++t) {
      for (size_t k = t; k < end; ++k) {
        wanted[t] += std::pow(0.9, static_cast<double>(k - t)) * rewards[k];
      }
    }
    first = end;
  }
  expect_near(rewards_to_go(rewards, kLengths, 0.9), wanted);
}

TEST(Gae, IsTheSumOfDiscountedErrors) {
  const auto rewards = random_numbers(12, 4), values = random_numbers(12, 5);
  for (const auto& [gamma, lambda] : {std::pair{1.0, 0.95}, {0.9, 0.7}, {1.0, 1.0}, {0.99, 0.0}}) {
    Numbers wanted(12), returns(12);
    size_t first = 0;
    for (const int64_t length : kLengths) {
      const size_t end = first + static_cast<size_t>(length);
      for (size_t t = first; t < end; ++t) {
        for (size_t k = t; k < end; ++k) {
          const double next = k + 1 < end ? values[k + 1] : 0;
          wanted[t] += std::pow(gamma * lambda, static_cast<double>(k - t)) *
                       (rewards[k] + gamma * next - values[k]);
        }
        returns[t] = wanted[t] + values[t];
      }
      first = end;
    }
    const auto found = gae(rewards, values, kLengths, {.gamma = gamma, .lambda = lambda});
    expect_near(found.advantages, wanted);
    expect_near(found.returns, returns);
  }
}

TEST(ExplainedVariance, IsOneOfPerfectValues) {
  const Numbers returns{1, 4, -2, 0.5};
  EXPECT_EQ(explained_variance(moments_of(Numbers{0, 0, 0, 0}), moments_of(returns)), 1);
  EXPECT_NEAR(*explained_variance(moments_of(returns), moments_of(returns)), 0, 1e-15);
  EXPECT_EQ(explained_variance(moments_of(returns), moments_of(Numbers{3, 3})), std::nullopt);
}

TEST(KlController, MovesTowardsItsTarget) {
  KlController controller{.coefficient = 0.2, .target = 6, .horizon = 1000};
  controller.update(60, 100);  // no faster than by a fifth
  EXPECT_NEAR(controller.coefficient, 0.2 * (1 + 0.2 * 0.1), 1e-15);
  controller.update(5.4, 100);
  EXPECT_NEAR(controller.coefficient, 0.2 * 1.02 * (1 - 0.1 * 0.1), 1e-15);
  controller.update(0, 500);
  EXPECT_NEAR(controller.coefficient, 0.2 * 1.02 * 0.99 * 0.9, 1e-15);
  KlController hasty{.coefficient = 1, .target = 6, .horizon = 1};
  hasty.update(0, 100);  // a step is longer than the horizon
  EXPECT_NEAR(hasty.coefficient, 0.8, 1e-15);
}

}  // namespace
}  // namespace skein::algorithms
