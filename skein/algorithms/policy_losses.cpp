// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/policy_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "skein/algorithms/advantages.h"
#include "skein/algorithms/episodes.h"
#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

using config::KlEstimator;
using config::PolicyLoss;
using config::RatioLevel;
using config::RolloutCorrection;
using Kind = Metric::Kind;
using Tensor = at::Tensor;

Tensor bounded(const Tensor& log_ratio) {
  return log_ratio.clamp(-kLargestLogRatio, kLargestLogRatio);
}

// What is known before the policy's ratio: constants.
struct Terms {
  const Tensor& log_probs;  // (n)
  const tensor::Episodes& episodes;
  const PolicyGradientOptions& options;
  Tensor lengths = episodes.num_targets.to(at::kDouble).clamp_min(1);  // (A)
  Tensor counts = of_targets(episodes.weights, episodes);              // (n): 0 is masked out
  Tensor old = episodes.old_log_probs.defined() ? episodes.old_log_probs : log_probs.detach();

  bool of_completions() const { return options.level != RatioLevel::kToken; }
};

// ρ, A and their share of the sum: (n), or (A) of whole completions.
struct Ratios {
  Tensor ratio, advantage, share;
};

// What a token counts: (n).
Tensor shares_of(const Terms& t) {
  if (t.options.loss != PolicyLoss::kGrpo) return t.counts;
  return of_targets(t.episodes.weights / t.lengths, t.episodes);
}

// p_old / p_rollout, as the options let it: (n). Ones where nothing is corrected.
Tensor corrections_of(const Terms& t) {
  const auto& options = t.options;
  if (options.correction == RolloutCorrection::kNone) return at::ones_like(t.counts);
  SKEIN_CHECK(t.episodes.rollout_log_probs.defined(), "what the sampler itself has said");
  const auto ratio = bounded(t.old - t.episodes.rollout_log_probs).exp();
  if (options.correction == RolloutCorrection::kTruncate) {
    return ratio.clamp_max(options.correction_cap);
  }
  return at::where(ratio > options.correction_cap, 0, ratio);
}

Ratios ratios_of(const Terms& t, const Tensor& shares) {
  const auto log_ratio = t.log_probs - t.old;
  const auto& advantages = t.episodes.advantages;
  SKEIN_CHECK(advantages.defined(), "an advantage for each target");
  if (!t.of_completions()) return {bounded(log_ratio).exp(), advantages, shares};
  auto whole = episode_sums(log_ratio, t.episodes);
  if (t.options.level == RatioLevel::kSequence) whole = whole / t.lengths;
  return {bounded(whole).exp(), episode_sums(advantages, t.episodes) / t.lengths,
          episode_sums(shares, t.episodes)};
}

Tensor clipped_loss(const Ratios& r, const PolicyGradientOptions& options) {
  const auto clipped = r.ratio.clamp(1 - options.epsilon, 1 + options.epsilon_high);
  const auto ratio = options.delta ? r.ratio.clamp_max(*options.delta) : r.ratio;
  auto loss = -at::minimum(ratio * r.advantage, clipped * r.advantage);
  if (!options.dual_clip) return loss;
  const auto most = -*options.dual_clip * r.advantage;
  return at::where(r.advantage < 0, at::minimum(loss, most), loss);
}

// Its ratio is a constant: of a completion, its tokens have it.
Tensor cispo_sum(const Terms& t, const Ratios& r, const Tensor& shares) {
  auto ratio = r.ratio.detach().clamp_max(t.options.epsilon_high);
  if (t.of_completions()) ratio = of_targets(ratio, t.episodes);
  return -(ratio * t.episodes.advantages * t.log_probs * shares).sum();
}

Tensor kl_of(const Tensor& log_ratio, KlEstimator estimator) {
  auto r = bounded(log_ratio);
  switch (estimator) {
    case KlEstimator::kK1:
      return r;
    case KlEstimator::kK2:
      return r.square() / 2;
    case KlEstimator::kK3:
      return at::expm1(-r) + r;
  }
  throw InternalError("a KL without a formula");
}

// (n); undefined where no reference was asked.
Tensor kl_terms(const Terms& t) {
  const auto& reference = t.episodes.reference_log_probs;
  return reference.defined() ? kl_of(t.log_probs - reference, t.options.kl) : Tensor();
}

// Metrics in the order in which they are named.
class Told {
 public:
  explicit Told(const Tensor& like) : zero_(at::zeros({}, like.options())) {}

  // Over what `counts` (0 or 1) names; undefined values were told by nobody.
  void tell(Kind kind, const Tensor& values, const Tensor& counts) {
    if (!values.defined()) return put(zero_, zero_);
    if (kind == Kind::kMean) {
      return put(at::where(counts > 0, values.to(at::kDouble), 0).sum(), counts.sum());
    }
    // Behind all of them one that never is the answer: there may be none.
    const double end = kind == Kind::kLeast ? std::numeric_limits<double>::max()
                                            : std::numeric_limits<double>::lowest();
    const auto own = at::where(counts > 0, values.to(at::kDouble), end);
    const auto ended = at::constant_pad_nd(own, {0, 1}, end);
    put(kind == Kind::kLeast ? ended.min() : ended.max(), counts.sum());
  }
  MetricValues take() const { return {at::stack(values_), at::stack(counts_)}; }

 private:
  void put(const Tensor& value, const Tensor& count) {
    values_.push_back(value);
    counts_.push_back(count);
  }

  Tensor zero_;
  std::vector<Tensor> values_, counts_;
};

// Which ratios are clipped, as numbers; and what they are counted over.
void tell_clipped(Told& told, const Terms& t, const Ratios& r) {
  const auto& options = t.options;
  const auto share = [](const Tensor& mask) { return mask.to(at::kDouble); };
  const auto complete = t.episodes.weights * (t.episodes.num_targets > 0).to(at::kDouble);  // (A)
  const auto counts = t.of_completions() ? complete : t.counts;
  told.tell(Kind::kMean, r.ratio, counts);
  if (options.loss == PolicyLoss::kCispo) {
    const auto high = share((r.ratio > options.epsilon_high).logical_and(r.advantage > 0));
    return told.tell(Kind::kMean, high, counts);
  }
  const auto low = share((r.ratio < 1 - options.epsilon).logical_and(r.advantage < 0));
  const auto high = share((r.ratio > 1 + options.epsilon_high).logical_and(r.advantage > 0));
  const auto of_each = [&](const Tensor& values) {
    return t.of_completions() ? values : episode_sums(values, t.episodes) / t.lengths;
  };
  told.tell(Kind::kMean, low, counts);
  told.tell(Kind::kLeast, of_each(low), complete);
  told.tell(Kind::kMean, high, counts);
  told.tell(Kind::kMost, of_each(high), complete);
  told.tell(Kind::kMean, low + high, counts);
}

MetricValues metrics_of(const Terms& t, const Ratios& r, const Tensor& entropy) {
  const at::NoGradGuard no_grad;
  Told told(t.counts);
  told.tell(Kind::kMean, kl_terms(t), t.counts);
  told.tell(Kind::kMean, entropy, t.counts);
  told.tell(Kind::kMean, (t.log_probs - t.old).square() / 2, t.counts);
  tell_clipped(told, t, r);
  const auto& rollout = t.episodes.rollout_log_probs;
  const auto gap = rollout.defined() ? (t.old - rollout).abs() : Tensor();
  told.tell(Kind::kMean, gap, t.counts);
  told.tell(Kind::kMost, gap, t.counts);
  if (t.options.correction == RolloutCorrection::kNone) return told.take();
  const auto corrections = corrections_of(t);
  for (const auto kind : {Kind::kLeast, Kind::kMean, Kind::kMost}) {
    told.tell(kind, corrections, t.counts);
  }
  return told.take();
}

}  // namespace

std::vector<Metric> policy_metrics(const PolicyGradientOptions& options) {
  std::vector<Metric> metrics{{"kl"}, {"entropy"}, {"approx_kl"}, {"ratio"}};
  if (options.loss == PolicyLoss::kCispo) {
    metrics.push_back({"cispo_clip_ratio"});
  } else {
    metrics.insert(metrics.end(), {{"clip_ratio/low_mean"},
                                   {"clip_ratio/low_min", Kind::kLeast},
                                   {"clip_ratio/high_mean"},
                                   {"clip_ratio/high_max", Kind::kMost},
                                   {"clip_ratio/region_mean"}});
  }
  metrics.push_back({"sampling/sampling_logp_difference/mean"});
  metrics.push_back({"sampling/sampling_logp_difference/max", Kind::kMost});
  if (options.correction != RolloutCorrection::kNone) {
    metrics.insert(metrics.end(), {{"sampling/importance_sampling_ratio/min", Kind::kLeast},
                                   {"sampling/importance_sampling_ratio/mean"},
                                   {"sampling/importance_sampling_ratio/max", Kind::kMost}});
  }
  return metrics;
}

PolicyLossSum policy_loss_sum(const Tensor& log_probs, const Tensor& entropy,
                              const tensor::Episodes& episodes,
                              const PolicyGradientOptions& options) {
  const Terms t{log_probs, episodes, options};
  const auto shares = shares_of(t), corrected = shares * corrections_of(t);
  const auto r = ratios_of(t, corrected);
  auto loss = options.loss == PolicyLoss::kCispo ? cispo_sum(t, r, corrected)
                                                 : (clipped_loss(r, options) * r.share).sum();
  if (options.beta != 0) {
    const auto kl = kl_terms(t);
    SKEIN_CHECK(kl.defined(), "the reference has looked at these completions");
    loss = loss + options.beta * (kl * shares).sum();
  }
  return {loss, metrics_of(t, r, entropy)};
}

int64_t policy_normaliser(const tensor::Counts& counts, const PolicyGradientOptions& options) {
  const auto count = [&] {
    switch (options.loss) {
      case PolicyLoss::kGrpo:
      case PolicyLoss::kSequenceSum:
        return counts.samples;
      case PolicyLoss::kDrGrpo:
        return counts.samples * options.max_completion_length;
      case PolicyLoss::kBnpo:
      case PolicyLoss::kDapo:
      case PolicyLoss::kCispo:
      case PolicyLoss::kPpo:
        return counts.targets;
    }
    throw InternalError("a loss without a divisor");
  };
  return std::max<int64_t>(1, count());
}

}  // namespace skein::algorithms
