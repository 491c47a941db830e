// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/feedback.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "skein/algorithms/sequences.h"
#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

// Of the answers that a mask (A, 0 or 1) names: their sum, and how many.
struct Masked {
  at::Tensor sum, count;
};
Masked masked(const at::Tensor& values, const at::Tensor& mask) {
  return {(values * mask).sum(), mask.sum()};
}

}  // namespace

Feedback::Feedback(const model::Model& model, const FeedbackOptions& options)
    : model_(model), options_(options) {
  passes_.push_back({Role::kReference, Rows::kOwn});
  if (options_.with_kl) {
    passes_.push_back({Role::kPolicy, Rows::kMismatched});
    passes_.push_back({Role::kReference, Rows::kMismatched});
  }
  for (const char* name : {"rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected",
                           "logits/chosen", "logits/rejected"}) {
    metrics_.push_back({name});
  }
  if (options_.with_kl) metrics_.push_back({"kl"});
}

at::Tensor Feedback::look(const tensor::Batch& batch, const Runner& runner) const {
  const auto hidden = runner.model.forward(batch, runner.key, runner.units);
  const auto numbers =
      runner.model.head_log_probs(hidden, batch, runner.units, {.adapters = runner.key.adapters});
  return answer_sums(numbers.log_probs, *batch.answers);
}

std::vector<double> Feedback::settle(std::span<const double> sums,
                                     const tensor::Counts& counts) const {
  // The last passes are those over mismatched answers: the policy's and the reference's.
  return {std::max(0.0, (sums[1] - sums[2]) / static_cast<double>(counts.samples))};
}

Part Feedback::loss_sum(const tensor::Batch& batch, const StepView& step,
                        tensor::Units& units) const {
  SKEIN_CHECK(batch.answers && batch.answers->desirable.defined(), "answers judged alone");
  const auto& answers = *batch.answers;
  const auto hidden = model_.forward(batch, step.key, units);
  const auto numbers = model_.head_log_probs(hidden, batch, units, {.mean_logit = true});
  const auto counts = answers.num_targets.to(at::kDouble);
  const auto log_probs = answer_sums(numbers.log_probs, answers);
  SKEIN_CHECK(step.looks.size() == passes_.size(), "the reference has looked at these answers");
  const auto ratio = log_probs - step.looks[0];
  const double kl = options_.with_kl ? step.statistics[0] : 0;
  // apo_zero_unpaired is the same with nothing to compare with.
  const auto lead = options_.beta * (ratio - kl);
  auto losses = at::where(answers.desirable, options_.desirable_weight * (1 - at::sigmoid(lead)),
                          options_.undesirable_weight * (1 - at::sigmoid(-lead)))
                    .sum();
  const auto good = answers.desirable.to(at::kDouble);
  if (options_.chosen_alpha > 0 && step.counts.desirable > 0) {
    const double per_good =
        static_cast<double>(step.counts.samples) / static_cast<double>(step.counts.desirable);
    losses = losses - options_.chosen_alpha * per_good * (log_probs / counts * good).sum();
  }

  losses = losses * step.weight;

  const at::NoGradGuard no_grad;
  const auto logits = answer_sums(numbers.mean_logits, answers);
  const auto rewards = options_.beta * ratio;
  std::vector<at::Tensor> values, of;
  for (const auto& tensor : {rewards, log_probs, logits}) {
    for (const auto& mask : {good, 1 - good}) {
      const auto [sum, count] = masked(tensor, mask);
      values.push_back(sum);
      // Logits are averaged over tokens, all else over answers.
      of.push_back(tensor.is_same(logits) ? masked(counts, mask).sum : count);
    }
  }
  if (options_.with_kl) {
    values.push_back(at::full_like(values[0], kl * static_cast<double>(answers.count())));
    of.push_back(at::full_like(values[0], static_cast<double>(answers.count())));
  }
  return {losses, {at::stack(values), at::stack(of)}};
}

}  // namespace skein::algorithms
