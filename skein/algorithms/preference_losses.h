// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Losses of pairs of answers: DPO and its kin.
//
// With r = log p(answer) - log p_reference(answer), n the number of its targets, a = log p / n,
// l = log sigmoid, β = beta, ε = smoothing, s(r) the score of a divergence and Δ = s(chosen) -
// s(rejected), the loss of a pair is
//
//   sigmoid       -(1-ε) l(βΔ) - ε l(-βΔ)
//   hinge         max(0, 1 - βΔ)
//   ipo           (s_c/n_c - s_r/n_r - 1/(2β))²
//   robust        (-(1-ε) l(βΔ) + ε l(-βΔ)) / (1 - 2ε)
//   exo_pair      σ(βΔ) (l(βΔ) - ln(1-ε)) + σ(-βΔ) (l(-βΔ) - ln ε)
//   nca_pair      -l(βr_c) - l(-βr_c)/2 - l(-βr_r)/2
//   sppo_hard     (r_c - 1/(2β))² + (r_r + 1/(2β))²
//   apo_zero      1 - σ(βr_c) + σ(βr_r)
//   apo_down      σ(βr_c) + 1 - σ(β(r_c - r_r))
//   discopop      with z = βΔ, m = σ(z/τ): -(1-m) l(z) + m exp(-z)
//   sigmoid_norm  -l(β(s_c/n_c - s_r/n_r))
//   simpo         with z = β(a_c - a_r) - γ: -(1-ε) l(z) - ε l(-z)
//   orpo          -a_c - β l(o), o the logarithm of the ratio of odds exp(a) / (1 - exp(a))
//   sft           -log p(chosen), which is divided by targets, not by pairs
//
// s is r (reverse_kl), 1 - exp(-r) (forward_kl), ln 2 + l(r) (js_divergence), or
// (exp((α-1)r) - 1) / (α-1) (alpha_divergence).

#include <ATen/core/Tensor.h>

#include "skein/algorithms/loss_options.h"

namespace skein::algorithms {

// (P) float64 each.
struct Answer {
  at::Tensor log_prob;   // the sum over its targets
  at::Tensor reference;  // of the reference; undefined for losses that need none
  at::Tensor num_targets;
};
struct PairTerms {
  Answer chosen, rejected;
};

// (P) float64, before anything divides it.
at::Tensor pair_losses(PreferenceLoss loss, const PairTerms& terms, const LossOptions& options);

// The logarithm of the ratio of odds, (P): orpo's o.
at::Tensor log_odds_ratio(const PairTerms& terms);

}  // namespace skein::algorithms
