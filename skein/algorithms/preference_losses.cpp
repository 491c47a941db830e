// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/preference_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>

#include <array>
#include <cmath>
#include <numbers>

#include "skein/core/error.h"
#include "skein/plan/preferences.h"

namespace skein::algorithms {
namespace {

using Tensor = at::Tensor;

// What the formulas are written in.
struct Terms {
  Tensor r_c, r_r;  // log-ratios
  Tensor s_c, s_r;  // scores of the divergence
  Tensor n_c, n_r;
  Tensor a_c, a_r;  // averages of the policy
  const LossOptions& options;

  Tensor lead() const { return options.beta * (s_c - s_r); }  // βΔ
  Tensor mean_lead() const { return options.beta * (s_c / n_c - s_r / n_r); }
};

// exp((α-1)r) is not let beyond what a double can hold; neither is its gradient.
constexpr double kLargestExponent = 80;

Tensor score(const Tensor& r, const LossOptions& options) {
  switch (options.divergence) {
    case Divergence::kReverseKl:
      return r;
    case Divergence::kForwardKl:
      return -at::expm1((-r).clamp_max(kLargestExponent));
    case Divergence::kJensenShannon:
      return std::numbers::ln2 + at::log_sigmoid(r);
    case Divergence::kAlpha: {
      const double power = options.alpha - 1;
      if (std::abs(power) < 1e-6) return r;  // its limit
      return at::expm1((power * r).clamp_max(kLargestExponent)) / power;
    }
  }
  throw InternalError("a divergence without a score");
}

Tensor smoothed(const Tensor& z, double smoothing) {
  return -(1 - smoothing) * at::log_sigmoid(z) - smoothing * at::log_sigmoid(-z);
}

Tensor sigmoid(const Terms& t) { return smoothed(t.lead(), t.options.smoothing); }

Tensor hinge(const Terms& t) { return at::relu(1 - t.lead()); }

Tensor ipo(const Terms& t) {
  return (t.s_c / t.n_c - t.s_r / t.n_r - 1 / (2 * t.options.beta)).square();
}

Tensor robust(const Terms& t) {
  const double e = t.options.smoothing;
  const auto z = t.lead();
  return (-(1 - e) * at::log_sigmoid(z) + e * at::log_sigmoid(-z)) / (1 - 2 * e);
}

Tensor exo_pair(const Terms& t) {
  const double e = t.options.smoothing;
  const auto z = t.lead();
  return at::sigmoid(z) * (at::log_sigmoid(z) - std::log1p(-e)) +
         at::sigmoid(-z) * (at::log_sigmoid(-z) - std::log(e));
}

Tensor nca_pair(const Terms& t) {
  const auto chosen = t.options.beta * t.r_c, rejected = t.options.beta * t.r_r;
  return -at::log_sigmoid(chosen) - 0.5 * at::log_sigmoid(-chosen) -
         0.5 * at::log_sigmoid(-rejected);
}

Tensor sppo_hard(const Terms& t) {
  const double half = 1 / (2 * t.options.beta);
  return (t.r_c - half).square() + (t.r_r + half).square();
}

Tensor apo_zero(const Terms& t) {
  return 1 - at::sigmoid(t.options.beta * t.r_c) + at::sigmoid(t.options.beta * t.r_r);
}

Tensor apo_down(const Terms& t) {
  return at::sigmoid(t.options.beta * t.r_c) + 1 - at::sigmoid(t.options.beta * (t.r_c - t.r_r));
}

Tensor discopop(const Terms& t) {
  const auto z = t.lead();
  const auto m = at::sigmoid(z / t.options.discopop_tau);
  return -(1 - m) * at::log_sigmoid(z) + m * (-z).exp();
}

Tensor sigmoid_norm(const Terms& t) { return -at::log_sigmoid(t.mean_lead()); }

Tensor simpo(const Terms& t) {
  return smoothed(t.options.beta * (t.a_c - t.a_r) - t.options.simpo_gamma, t.options.smoothing);
}

// ln(1 - exp(x)) of x < 0: each form is exact where the other is not. An answer that is certain
// would have infinite odds.
Tensor log1mexp(const Tensor& x) {
  const auto below = x.clamp_max(-1e-12);
  return at::where(below > -std::numbers::ln2, (-at::expm1(below)).log(), at::log1p(-below.exp()));
}

Tensor odds(const Tensor& a_c, const Tensor& a_r) {
  return (a_c - a_r) - (log1mexp(a_c) - log1mexp(a_r));
}

Tensor orpo(const Terms& t) {
  return -t.a_c - t.options.beta * at::log_sigmoid(odds(t.a_c, t.a_r));
}

Tensor sft(const Terms& t) { return -t.a_c * t.n_c; }

struct Entry {
  PreferenceLoss loss;
  Tensor (*compute)(const Terms&);
};

constexpr std::array kLosses{Entry{PreferenceLoss::kSigmoid, sigmoid},
                             Entry{PreferenceLoss::kHinge, hinge},
                             Entry{PreferenceLoss::kIpo, ipo},
                             Entry{PreferenceLoss::kRobust, robust},
                             Entry{PreferenceLoss::kExoPair, exo_pair},
                             Entry{PreferenceLoss::kNcaPair, nca_pair},
                             Entry{PreferenceLoss::kSppoHard, sppo_hard},
                             Entry{PreferenceLoss::kApoZero, apo_zero},
                             Entry{PreferenceLoss::kApoDown, apo_down},
                             Entry{PreferenceLoss::kDiscopop, discopop},
                             Entry{PreferenceLoss::kSigmoidNorm, sigmoid_norm},
                             Entry{PreferenceLoss::kSimpo, simpo},
                             Entry{PreferenceLoss::kOrpo, orpo},
                             Entry{PreferenceLoss::kSft, sft}};

const Entry& entry_of(PreferenceLoss loss) {
  for (const auto& entry : kLosses) {
    if (entry.loss == loss) return entry;
  }
  throw InternalError("a loss without a formula");
}

}  // namespace

at::Tensor pair_losses(PreferenceLoss loss, const PairTerms& terms, const LossOptions& options) {
  const auto& [chosen, rejected] = terms;
  const auto& entry = entry_of(loss);
  Terms t{.n_c = chosen.num_targets,
          .n_r = rejected.num_targets,
          .a_c = chosen.log_prob / chosen.num_targets,
          .a_r = rejected.log_prob / rejected.num_targets,
          .options = options};
  if (plan::facts_of(loss).needs_reference) {
    t.r_c = chosen.log_prob - chosen.reference;
    t.r_r = rejected.log_prob - rejected.reference;
    t.s_c = score(t.r_c, options);
    t.s_r = score(t.r_r, options);
  }
  return entry.compute(t);
}

at::Tensor log_odds_ratio(const PairTerms& terms) {
  return odds(terms.chosen.log_prob / terms.chosen.num_targets,
              terms.rejected.log_prob / terms.rejected.num_targets);
}

}  // namespace skein::algorithms
