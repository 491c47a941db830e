// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/critic.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <vector>

#include "skein/algorithms/episodes.h"
#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

const std::vector<Metric> kMetrics{
    {"value/loss"}, {"value/clip_fraction"}, {"value/mean"}, {"value/returns"}};

}  // namespace

Critic::Critic(const model::Model& model, const CriticOptions& options)
    : model_(model), options_(options) {
  SKEIN_CHECK(model.has_scores(), "a critic scores");
}

int64_t Critic::normaliser(const tensor::Counts& counts) const {
  return std::max<int64_t>(1, counts.targets);
}

std::span<const Metric> Critic::metrics() const { return kMetrics; }

Part Critic::loss_sum(const tensor::Batch& batch, const StepView& step,
                      tensor::Units& units) const {
  auto part =
      value_loss_sum(target_values(model_, batch, step.key, units), *batch.episodes, options_);
  part.loss = part.loss * step.weight;
  return part;
}

Part value_loss_sum(const at::Tensor& values, const tensor::Episodes& episodes,
                    const CriticOptions& options) {
  const auto& returns = episodes.returns;
  const auto& old = episodes.old_values;
  SKEIN_CHECK(returns.defined(), "a return for each target");
  const auto counts = of_targets(episodes.weights, episodes);
  const auto plain = (values - returns).square();
  auto clipped = plain, squares = plain;
  if (options.clip_range > 0) {
    SKEIN_CHECK(old.defined(), "the critic has looked at these completions");
    const auto near = at::clamp(values, old - options.clip_range, old + options.clip_range);
    clipped = (near - returns).square();
    squares = at::maximum(plain, clipped);
  }
  const auto loss = (squares / 2 * counts).sum(), scaled = options.coefficient * loss;

  const at::NoGradGuard no_grad;
  const auto count = counts.sum();
  const auto sum = [&](const at::Tensor& of) { return at::where(counts > 0, of, 0).sum(); };
  const auto is_clipped = (clipped > plain).to(at::kDouble);
  return {scaled,
          {at::stack({loss.detach(), sum(is_clipped), sum(values), sum(returns)}),
           at::stack({count, count, count, count})}};
}

}  // namespace skein::algorithms
