// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From rewards to advantages: how much better than expected was a completion, or a token?
//
// Plain numbers on the host, free of torch. What compares completions takes those of the whole
// step, from all ranks, in the order of its samples: the result then does not depend on how the
// step is dealt. A completion that nobody has scored has the reward NaN: it is in no mean, and its
// advantage is 0. Numbers of tokens lie completion by completion; `lengths` says how many each has.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "skein/algorithms/moments.h"
#include "skein/config/syntax/choices.h"

namespace skein::algorithms {

// exp() of more says only that a policy has left everything behind: ratios end here.
inline constexpr double kLargestLogRatio = 20;

// What is done to scores before anything compares them.
struct ScoreRules {
  double missing_end_penalty = 0;  // is subtracted from what did not come to its end
  std::optional<double> clip{};    // to [-clip, clip]
};
// `ended`: whether each completion has its end token.
std::vector<double> ruled_scores(std::span<const double> scores, const std::vector<bool>& ended,
                                 const ScoreRules& rules);

// Scores that are brought to mean 0 and deviation 1 of all that were seen so far, these included.
// State of a run: `seen` is saved.
struct ScoreNormaliser {
  Moments seen{};

  std::vector<double> normalised(std::span<const double> scores);
};

// Is there nothing to learn from a group: fewer than two different rewards?
bool is_all_equal(std::span<const double> rewards);
// The share of groups of which that is true.
double share_of_equal_groups(std::span<const double> rewards, size_t group_size);

// Of GRPO: (reward - mean of its group) / (deviation + epsilon), the deviation (unbiased) being
// that of the group or of the whole step; `kNone`: undivided. A group without spread gives exactly
// 0, one of a single reward too.
struct GroupOptions {
  size_t size = 8;  // completions to one prompt, which lie behind each other
  config::ScaleRewards scale = config::ScaleRewards::kGroup;
  double epsilon = 1e-4;
};
std::vector<double> group_advantages(std::span<const double> rewards, const GroupOptions& options);

// Of RLOO: reward - mean of the others of its group. The same rules for groups without spread.
std::vector<double> leave_one_out_advantages(std::span<const double> rewards, size_t group_size);

// Of each token what its completion has.
std::vector<double> spread(std::span<const double> values, std::span<const int64_t> lengths);

// Estimates of KL(policy, reference) by the tokens that the policy has sampled.
std::vector<double> kl_estimates(std::span<const double> log_probs,
                                 std::span<const double> reference_log_probs,
                                 config::KlEstimator estimator);

// Of each token -coefficient · kl, and the completion's score at its last one. `kl` empty: none.
struct TokenPenalty {
  std::span<const double> kl{};
  double coefficient = 0;
};
std::vector<double> token_rewards(std::span<const double> scores, std::span<const int64_t> lengths,
                                  const TokenPenalty& penalty = {});

// Of each token the sum of γ^k times the reward k tokens later: REINFORCE++'s advantages before
// they are whitened. Its `baseline` kind subtracts the mean of the group from scores before that:
// group_advantages() with kNone.
std::vector<double> rewards_to_go(std::span<const double> rewards, std::span<const int64_t> lengths,
                                  double gamma = 1);

// Generalised advantage estimation: with δ_t = r_t + γ v_{t+1} - v_t, of which the value behind the
// last token is 0, the advantage is the sum of (γλ)^k δ_{t+k}. Returns are advantages + values,
// before anything is whitened.
struct Gae {
  std::vector<double> advantages, returns;
};
struct GaeOptions {
  double gamma = 1, lambda = 0.95;
};
Gae gae(std::span<const double> rewards, std::span<const double> values,
        std::span<const int64_t> lengths, const GaeOptions& options = {});

// 1 - variance(returns - values) / variance(returns), of moments over the step (moments.h); none
// where all returns are the same.
std::optional<double> explained_variance(const Moments& errors, const Moments& returns);

// Moves the coefficient of a KL penalty so that the KL comes to a target. State of a run: the
// coefficient is saved.
struct KlController {
  double coefficient = 0.05;
  double target = 6;
  double horizon = 10000;  // samples

  // coefficient · (1 + clip(kl / target - 1, ±0.2) · min(samples / horizon, 1)); without the second
  // bound a horizon shorter than a step could turn the sign around
  void update(double kl, int64_t samples);
};

}  // namespace skein::algorithms
