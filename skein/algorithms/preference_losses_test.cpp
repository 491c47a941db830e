// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/preference_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "skein/config/syntax/values.h"
#include "skein/plan/preferences.h"

namespace skein::algorithms {
namespace {

using Real = long double;

// One pair: log-probabilities, those of the reference, numbers of targets.
struct Pair {
  Real chosen = 0, rejected = 0;
  double ref_chosen = 0, ref_rejected = 0, num_chosen = 1, num_rejected = 1;
};

Real logistic(Real x) { return 1 / (1 + std::exp(-x)); }
Real log_logistic(Real x) {
  return x > 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}
Real log_odds(Real a) { return a - std::log1p(-std::exp(a)); }

Real score_of(Real r, const LossOptions& o) {
  switch (o.divergence) {
    case Divergence::kReverseKl:
      return r;
    case Divergence::kForwardKl:
      return 1 - std::exp(-r);
    case Divergence::kJensenShannon:
      return std::log(Real{2}) + log_logistic(r);
    case Divergence::kAlpha:
      return (std::exp((o.alpha - 1) * r) - 1) / (o.alpha - 1);
  }
  return 0;
}

// The formulas once more, one pair at a time, in wider numbers.
Real formula(PreferenceLoss loss, const Pair& p, const LossOptions& o) {
  using enum PreferenceLoss;
  const Real b = o.beta, e = o.smoothing;
  const Real rc = p.chosen - p.ref_chosen, rr = p.rejected - p.ref_rejected;
  const Real sc = score_of(rc, o), sr = score_of(rr, o);
  const Real z = b * (sc - sr), mean = sc / p.num_chosen - sr / p.num_rejected;
  const Real ac = p.chosen / p.num_chosen, ar = p.rejected / p.num_rejected;
  switch (loss) {
    case kSigmoid:
      return -(1 - e) * log_logistic(z) - e * log_logistic(-z);
    case kHinge:
      return std::max(Real{0}, 1 - z);
    case kIpo:
      return std::pow(mean - 1 / (2 * b), 2);
    case kRobust:
      return (-(1 - e) * log_logistic(z) + e * log_logistic(-z)) / (1 - 2 * e);
    case kExoPair:
      return logistic(z) * (log_logistic(z) - std::log(1 - e)) +
             logistic(-z) * (log_logistic(-z) - std::log(e));
    case kNcaPair:
      return -log_logistic(b * rc) - log_logistic(-b * rc) / 2 - log_logistic(-b * rr) / 2;
    case kSppoHard:
      return std::pow(rc - 1 / (2 * b), 2) + std::pow(rr + 1 / (2 * b), 2);
    case kApoZero:
      return 1 - logistic(b * rc) + logistic(b * rr);
    case kApoDown:
      return logistic(b * rc) + 1 - logistic(b * (rc - rr));
    case kDiscopop: {
      const Real m = logistic(z / o.discopop_tau);
      return -(1 - m) * log_logistic(z) + m * std::exp(-z);
    }
    case kSigmoidNorm:
      return -log_logistic(b * mean);
    case kSimpo: {
      const Real x = b * (ac - ar) - o.simpo_gamma;
      return -(1 - e) * log_logistic(x) - e * log_logistic(-x);
    }
    case kOrpo:
      return -ac - b * log_logistic(log_odds(ac) - log_odds(ar));
    case kSft:
      return -p.chosen;
  }
  return 0;
}

// Of the fourth order.
Real slope(const std::function<Real(Real)>& f, Real x) {
  const Real h = 1e-4L;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

std::vector<Pair> random_pairs() {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> value(-60, -0.5), near(-4, 4);
  std::uniform_int_distribution<int> count(1, 40);
  std::vector<Pair> pairs;
  for (int i = 0; i < 50; ++i) {
    Pair p{.chosen = value(random), .rejected = value(random)};
    p.ref_chosen = static_cast<double>(p.chosen) + near(random);
    p.ref_rejected = static_cast<double>(p.rejected) + near(random);
    p.num_chosen = count(random);
    p.num_rejected = count(random);
    pairs.push_back(p);
  }
  return pairs;
}

struct Tensors {
  PairTerms terms;

  explicit Tensors(const std::vector<Pair>& pairs) {
    const auto column = [&](auto of) {
      std::vector<double> values;
      for (const auto& pair : pairs) values.push_back(static_cast<double>(of(pair)));
      return at::tensor(values, at::kDouble);
    };
    terms.chosen = {column([](auto& p) { return p.chosen; }).set_requires_grad(true),
                    column([](auto& p) { return p.ref_chosen; }),
                    column([](auto& p) { return p.num_chosen; })};
    terms.rejected = {column([](auto& p) { return p.rejected; }).set_requires_grad(true),
                      column([](auto& p) { return p.ref_rejected; }),
                      column([](auto& p) { return p.num_rejected; })};
  }
};

void expect_formula(PreferenceLoss loss, const LossOptions& options, const std::string& name) {
  const auto pairs = random_pairs();
  const Tensors tensors(pairs);
  const auto& [chosen, rejected] = tensors.terms;
  const auto found = pair_losses(loss, tensors.terms, options);
  const auto slopes = torch::autograd::grad({found.sum()}, {chosen.log_prob, rejected.log_prob}, {},
                                            {}, false, /*allow_unused=*/true);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const auto expected = static_cast<double>(formula(loss, pairs[i], options));
    EXPECT_NEAR(found[at].item<double>(), expected, 1e-10 * (1 + std::abs(expected))) << name;
    for (const bool is_chosen : {true, false}) {
      const auto& slope_found = slopes[is_chosen ? 0 : 1];
      const auto wanted = static_cast<double>(slope(
          [&](Real x) {
            auto pair = pairs[i];
            (is_chosen ? pair.chosen : pair.rejected) = x;
            return formula(loss, pair, options);
          },
          is_chosen ? pairs[i].chosen : pairs[i].rejected));
      const double own = slope_found.defined() ? slope_found[at].item<double>() : 0;
      EXPECT_NEAR(own, wanted, 1e-10 * (1 + std::abs(wanted))) << name << " " << i;
    }
  }
}

// All but those of answers that were judged alone.
std::vector<config::Spelling<PreferenceLoss>> losses_of_pairs() {
  std::vector<config::Spelling<PreferenceLoss>> losses;
  for (const auto& word : config::spellings_of(PreferenceLoss{}).known) {
    const bool is_alone =
        word.value == PreferenceLoss::kKto || word.value == PreferenceLoss::kApoZeroUnpaired;
    if (!is_alone) losses.push_back(word);
  }
  return losses;
}

TEST(PreferenceLosses, AreTheirFormulas) {
  ASSERT_EQ(losses_of_pairs().size(), 14U);
  for (const auto& [name, loss] : losses_of_pairs()) {
    for (const double beta : {0.1, 0.7}) {
      LossOptions options{.beta = beta};
      options.smoothing = loss == PreferenceLoss::kExoPair ? 1e-3 : 0;
      expect_formula(loss, options, std::string(name));
      options.smoothing = 0.2;
      expect_formula(loss, options, std::string(name) + ", smoothed");
    }
  }
}

TEST(PreferenceLosses, TakeDivergences) {
  for (const auto& [name, loss] : losses_of_pairs()) {
    if (!plan::facts_of(loss).takes_divergence) continue;
    for (const auto& [word, divergence] : config::spellings_of(Divergence{}).known) {
      expect_formula(loss,
                     {.beta = 0.3,
                      .smoothing = loss == PreferenceLoss::kExoPair ? 0.1 : 0,
                      .divergence = divergence,
                      .alpha = 0.4},
                     std::string(name) + " " + std::string(word));
    }
  }
}

TEST(PreferenceLosses, StayFiniteAtTheEdges) {
  const std::vector<Pair> pairs{
      {.chosen = -900, .rejected = -1e-3, .ref_chosen = -1},
      {.chosen = -1e-14L, .rejected = -900, .ref_rejected = -1},
      {.chosen = -5, .rejected = -5, .ref_chosen = -5, .ref_rejected = -5}};
  for (const auto& [name, loss] : losses_of_pairs()) {
    for (const auto& [word, divergence] : config::spellings_of(Divergence{}).known) {
      const Tensors tensors(pairs);
      const LossOptions options{.smoothing = 0.1, .divergence = divergence, .alpha = 0.2};
      const auto found = pair_losses(loss, tensors.terms, options);
      // exp(-z) of discopop may be as large as it likes.
      if (loss == PreferenceLoss::kDiscopop) continue;
      EXPECT_TRUE(found.isfinite().all().item<bool>()) << name << " " << word;
      const auto slopes = torch::autograd::grad({found.sum()}, {tensors.terms.chosen.log_prob});
      EXPECT_TRUE(slopes[0].isfinite().all().item<bool>()) << name << " " << word;
    }
  }
}

// Those that need none are computed without one.
TEST(PreferenceLosses, SomeNeedNoReference) {
  int count = 0;
  for (const auto& [name, loss] : losses_of_pairs()) {
    if (plan::facts_of(loss).needs_reference) continue;
    ++count;
    Tensors tensors(random_pairs());
    tensors.terms.chosen.reference = tensors.terms.rejected.reference = at::Tensor();
    EXPECT_TRUE(pair_losses(loss, tensors.terms, {}).isfinite().all().item<bool>()) << name;
  }
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace skein::algorithms
