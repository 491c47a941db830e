// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Losses of completions that a policy has sampled itself: GRPO and its kin, RLOO, REINFORCE++, and
// the actor of PPO.
//
// With x = log p - log p_old of a token, within ±20, and n the number of a completion's tokens, the
// ratio ρ is
//
//   token         exp(x)
//   sequence      exp(mean of x over the completion), GSPO's
//   sequence_sum  exp(sum of x over the completion), RLOO's
//
// and with A the advantage, e and h the two epsilons, a token's loss is
//
//   l = -min(ρ A, clip(ρ, 1 - e, 1 + h) A)
//
// in which `delta` bounds the first ρ from above, and with `dual_clip` c, where A < 0, l is at most
// -c A. cispo has l = -min(ρ, h) A log p, where the ratio is a constant (h is the bound itself, not
// what is added to 1, as in TRL). `correction` multiplies l by w = p_old / p_rollout: truncate
// takes min(w, cap), mask takes 0 for w > cap. To that comes beta times an estimate of KL(policy,
// reference) with r = log p - log p_reference, within ±20:
//
//   k1  r          k2  r² / 2          k3  exp(-r) - 1 + r
//
// What the sum over tokens is divided by is one number of the whole step, however it is split:
//
//   grpo                the mean over completions of the mean over their tokens
//   seq_mean_token_sum  the mean over completions of the sum over their tokens
//   dr_grpo             the sum over tokens / (completions · max_completion_length)
//   bnpo, dapo, ppo, cispo  the mean over all tokens
//
// A ratio of a whole completion gives each of its tokens the same l: `grpo` counts it once. What is
// masked out adds nothing, and its tokens are not counted; it stays one of the completions.

#include <ATen/core/Tensor.h>

#include <vector>

#include "skein/algorithms/metrics.h"
#include "skein/algorithms/options.h"
#include "skein/tensor/batch.h"

namespace skein::algorithms {

// Names and meaning as in TRL. Those over tokens are over the tokens of completions that count; of
// clipped ones also the least and largest share of a completion.
std::vector<Metric> policy_metrics(const PolicyGradientOptions& options);

struct PolicyLossSum {
  at::Tensor loss;  // float64 scalar: the sum that policy_normaliser() divides
  MetricValues metrics;
};

// `log_probs` (n) float64: the policy's, where gradients go; `entropy` (n), or undefined. Where the
// episodes tell no old log-probabilities they are these very ones: the first update after a
// rollout, of which all ratios are 1.
PolicyLossSum policy_loss_sum(const at::Tensor& log_probs, const at::Tensor& entropy,
                              const tensor::Episodes& episodes,
                              const PolicyGradientOptions& options);

// At least 1: a step in which everything is masked out has the loss 0.
int64_t policy_normaliser(const tensor::Counts& counts, const PolicyGradientOptions& options);

}  // namespace skein::algorithms
