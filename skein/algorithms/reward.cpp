// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/reward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "skein/algorithms/sequences.h"
#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

using Kind = Metric::Kind;

const std::vector<Metric> kMetrics{{"accuracy"},
                                   {"margin"},
                                   {"mean_reward"},
                                   {"min_reward", Kind::kLeast},
                                   {"max_reward", Kind::kMost}};

MetricValues metrics_of(const at::Tensor& scores, const PairValues& pairs) {
  const at::NoGradGuard no_grad;
  const auto pair_count = static_cast<double>(pairs.chosen.numel());
  const auto counts = [&](double value) { return at::full({}, value, scores.options()); };
  const bool none = pair_count == 0;  // least and most of nothing are not defined
  const auto zero = at::zeros({}, scores.options());
  return {at::stack({(pairs.chosen > pairs.rejected).sum().to(scores.scalar_type()),
                     (pairs.chosen - pairs.rejected).sum(), scores.sum(),
                     none ? zero : scores.min(), none ? zero : scores.max()}),
          at::stack({counts(pair_count), counts(pair_count), counts(2 * pair_count),
                     counts(2 * pair_count), counts(2 * pair_count)})};
}

}  // namespace

Reward::Reward(const model::Model& model, const RewardOptions& options)
    : model_(model), options_(options) {
  SKEIN_CHECK(model.has_scores(), "a reward model scores");
}

std::span<const Metric> Reward::metrics() const { return kMetrics; }

Part Reward::loss_sum(const tensor::Batch& batch, const StepView& step,
                      tensor::Units& units) const {
  SKEIN_CHECK(batch.answers, "pairs of answers");
  const auto hidden = model_.forward(batch, step.key, units);
  const auto scores = model_.head_scores(hidden, batch.answers->ends, units).to(at::kDouble);
  const auto pairs = pairs_of(scores);
  auto lead = pairs.chosen - pairs.rejected;
  if (batch.answers->margins.defined()) lead = lead - batch.answers->margins;
  auto losses = -at::log_sigmoid(lead);
  if (options_.centring > 0) {
    losses = losses + options_.centring * (pairs.chosen + pairs.rejected).square();
  }
  return {losses.sum() * step.weight, metrics_of(scores.detach(), pairs)};
}

}  // namespace skein::algorithms
