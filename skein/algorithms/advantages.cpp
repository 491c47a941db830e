// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/advantages.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

using config::KlEstimator;
using config::ScaleRewards;

// Of those that somebody has scored.
Moments scored_moments(std::span<const double> rewards) {
  Moments moments;
  for (const double reward : rewards) {
    if (!std::isnan(reward)) moments.add(reward);
  }
  return moments;
}

// visit(group of rewards, its first index) for each group that has spread. In others all stays 0:
// a mean of equal numbers may differ from them by rounding.
template <typename Visit>
std::vector<double> by_group(std::span<const double> rewards, size_t size, Visit advantage) {
  SKEIN_CHECK(size > 0 && rewards.size() % size == 0, "groups are whole");
  std::vector<double> advantages(rewards.size());
  for (size_t first = 0; first < rewards.size(); first += size) {
    const auto group = rewards.subspan(first, size);
    if (is_all_equal(group)) continue;
    const auto moments = scored_moments(group);
    for (size_t i = 0; i < size; ++i) {
      if (!std::isnan(group[i])) advantages[first + i] = advantage(group[i], moments);
    }
  }
  return advantages;
}

// visit(index of the first token, index behind the last) for each completion.
template <typename Visit>
void by_completion(size_t num_tokens, std::span<const int64_t> lengths, Visit visit) {
  size_t first = 0;
  for (const int64_t length : lengths) {
    const size_t end = first + static_cast<size_t>(length);
    SKEIN_CHECK(length >= 0 && end <= num_tokens, "a number for each token");
    visit(first, end);
    first = end;
  }
  SKEIN_CHECK(first == num_tokens, "no number beyond the last completion");
}

size_t sum_of(std::span<const int64_t> lengths) {
  size_t sum = 0;
  for (const int64_t length : lengths) sum += static_cast<size_t>(length);
  return sum;
}

}  // namespace

std::vector<double> ruled_scores(std::span<const double> scores, const std::vector<bool>& ended,
                                 const ScoreRules& rules) {
  SKEIN_CHECK(scores.size() == ended.size(), "each score is a completion's");
  std::vector<double> ruled(scores.begin(), scores.end());
  for (size_t i = 0; i < ruled.size(); ++i) {
    if (!ended[i]) ruled[i] -= rules.missing_end_penalty;
    if (rules.clip) ruled[i] = std::clamp(ruled[i], -*rules.clip, *rules.clip);
  }
  return ruled;
}

std::vector<double> ScoreNormaliser::normalised(std::span<const double> scores) {
  seen.add(scored_moments(scores));
  const double scale = 1 / (seen.deviation() + std::numeric_limits<float>::epsilon());
  std::vector<double> result;
  for (const double score : scores) result.push_back((score - seen.mean) * scale);
  return result;
}

bool is_all_equal(std::span<const double> rewards) {
  std::optional<double> first;
  for (const double reward : rewards) {
    if (std::isnan(reward)) continue;
    if (first && reward != *first) return false;
    first = reward;
  }
  return true;
}

double share_of_equal_groups(std::span<const double> rewards, size_t group_size) {
  SKEIN_CHECK(group_size > 0 && rewards.size() % group_size == 0, "groups are whole");
  if (rewards.empty()) return 0;
  double equal = 0;
  for (size_t first = 0; first < rewards.size(); first += group_size) {
    equal += is_all_equal(rewards.subspan(first, group_size));
  }
  return equal * static_cast<double>(group_size) / static_cast<double>(rewards.size());
}

std::vector<double> group_advantages(std::span<const double> rewards, const GroupOptions& options) {
  const double of_all = scored_moments(rewards).deviation();
  return by_group(rewards, options.size, [&](double reward, const Moments& group) {
    const double lead = reward - group.mean;
    switch (options.scale) {
      case ScaleRewards::kGroup:
        return lead / (group.deviation() + options.epsilon);
      case ScaleRewards::kBatch:
        return lead / (of_all + options.epsilon);
      case ScaleRewards::kNone:
        return lead;
    }
    throw InternalError("rewards that nothing scales");
  });
}

std::vector<double> leave_one_out_advantages(std::span<const double> rewards, size_t group_size) {
  return by_group(rewards, group_size, [](double reward, const Moments& group) {
    const double others = (group.mean * group.count - reward) / (group.count - 1);
    return reward - others;
  });
}

std::vector<double> spread(std::span<const double> values, std::span<const int64_t> lengths) {
  SKEIN_CHECK(values.size() == lengths.size(), "a number for each completion");
  std::vector<double> all;
  for (size_t i = 0; i < values.size(); ++i) {
    all.insert(all.end(), static_cast<size_t>(lengths[i]), values[i]);
  }
  return all;
}

std::vector<double> kl_estimates(std::span<const double> log_probs,
                                 std::span<const double> reference_log_probs,
                                 KlEstimator estimator) {
  SKEIN_CHECK(log_probs.size() == reference_log_probs.size(), "both say something of each token");
  std::vector<double> estimates;
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const double r =
        std::clamp(log_probs[i] - reference_log_probs[i], -kLargestLogRatio, kLargestLogRatio);
    estimates.push_back(estimator == KlEstimator::kK1   ? r
                        : estimator == KlEstimator::kK2 ? r * r / 2
                                                        : std::expm1(-r) + r);
  }
  return estimates;
}

std::vector<double> token_rewards(std::span<const double> scores, std::span<const int64_t> lengths,
                                  const TokenPenalty& penalty) {
  SKEIN_CHECK(scores.size() == lengths.size(), "a score for each completion");
  std::vector<double> rewards(sum_of(lengths));
  SKEIN_CHECK(penalty.kl.empty() || penalty.kl.size() == rewards.size(), "a KL for each token");
  for (size_t t = 0; t < penalty.kl.size(); ++t) rewards[t] = -penalty.coefficient * penalty.kl[t];
  size_t completion = 0;
  by_completion(rewards.size(), lengths, [&](size_t first, size_t end) {
    const double score = scores[completion++];
    if (end > first && !std::isnan(score)) rewards[end - 1] += score;
  });
  return rewards;
}

std::vector<double> rewards_to_go(std::span<const double> rewards, std::span<const int64_t> lengths,
                                  double gamma) {
  std::vector<double> sums(rewards.begin(), rewards.end());
  by_completion(sums.size(), lengths, [&](size_t first, size_t end) {
    for (size_t t = end; t-- > first;) {
      if (t + 1 < end) sums[t] += gamma * sums[t + 1];
    }
  });
  return sums;
}

Gae gae(std::span<const double> rewards, std::span<const double> values,
        std::span<const int64_t> lengths, const GaeOptions& options) {
  SKEIN_CHECK(rewards.size() == values.size(), "a value for each token");
  Gae result{std::vector<double>(rewards.size()), std::vector<double>(rewards.size())};
  by_completion(rewards.size(), lengths, [&](size_t first, size_t end) {
    double next_value = 0, sum = 0;
    for (size_t t = end; t-- > first;) {
      const double lead = rewards[t] + options.gamma * next_value - values[t];
      sum = lead + options.gamma * options.lambda * sum;
      result.advantages[t] = sum;
      result.returns[t] = sum + values[t];
      next_value = values[t];
    }
  });
  return result;
}

std::optional<double> explained_variance(const Moments& errors, const Moments& returns) {
  if (returns.variance() == 0) return std::nullopt;
  return 1 - errors.variance() / returns.variance();
}

void KlController::update(double kl, int64_t samples) {
  const double error = std::clamp(kl / target - 1, -0.2, 0.2);
  coefficient *= 1 + error * std::min(static_cast<double>(samples) / horizon, 1.0);
}

}  // namespace skein::algorithms
