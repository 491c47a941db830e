// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "skein/algorithms/preference_losses.h"
#include "skein/algorithms/sequences.h"
#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

constexpr Pass kReference[] = {{Role::kReference, Rows::kOwn}};

// A pair's answers beyond the shorter one's length count `alpha` -> (A, longest).
at::Tensor length_weights(const tensor::Answers& answers, double alpha) {
  const auto [chosen, rejected] = pairs_of(answers.num_targets);
  const auto shorter = at::minimum(chosen, rejected);
  const auto limits = at::stack({shorter, shorter}, 1).view({-1, 1});
  const auto ordinals = at::arange(answers.targets.size(1), answers.num_targets.options());
  const auto within = (ordinals.unsqueeze(0) < limits).to(at::kDouble);
  return within + alpha * (1 - within);
}

}  // namespace

Preference::Preference(const model::Model& model, const PreferenceOptions& options)
    : model_(model), options_(options) {
  SKEIN_CHECK(options_.losses.size() == options_.weights.size(), "a weight for each loss");
  for (const char* name :
       {"rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins",
        "logps/chosen", "logps/rejected", "logits/chosen", "logits/rejected"}) {
    metrics_.push_back({name});
  }
  // What says most is shown first.
  std::rotate(metrics_.begin(), metrics_.begin() + 2, metrics_.begin() + 4);
  if (has_nll()) metrics_.push_back({"nll_loss"});
  if (has(PreferenceLoss::kOrpo)) {
    for (const char* name : {"log_odds_ratio", "log_odds_chosen"}) metrics_.push_back({name});
  }
}

bool Preference::has(PreferenceLoss loss) const {
  return std::ranges::find(options_.losses, loss) != options_.losses.end();
}

bool Preference::has_nll() const {
  return has(PreferenceLoss::kSft) || options_.rpo_alpha > 0 || options_.chosen_alpha > 0;
}

std::span<const Pass> Preference::passes() const {
  if (options_.has_reference) return kReference;
  return {};
}

at::Tensor Preference::sums_of(const at::Tensor& log_probs, const tensor::Answers& answers) const {
  if (!options_.ld_alpha) return answer_sums(log_probs, answers);
  return answer_sums(log_probs, answers, length_weights(answers, *options_.ld_alpha));
}

at::Tensor Preference::look(const tensor::Batch& batch, const Runner& runner) const {
  const auto hidden = runner.model.forward(batch, runner.key, runner.units);
  const auto numbers =
      runner.model.head_log_probs(hidden, batch, runner.units, {.adapters = runner.key.adapters});
  return sums_of(numbers.log_probs, *batch.answers);
}

Part Preference::loss_sum(const tensor::Batch& batch, const StepView& step,
                          tensor::Units& units) const {
  SKEIN_CHECK(batch.answers, "pairs of answers");
  const auto& answers = *batch.answers;
  const auto hidden = model_.forward(batch, step.key, units);
  const auto numbers = model_.head_log_probs(hidden, batch, units, {.mean_logit = true});
  const auto counts = answers.num_targets.to(at::kDouble);
  const auto log_probs = pairs_of(sums_of(numbers.log_probs, answers));
  const auto [n_chosen, n_rejected] = pairs_of(counts);
  // What teaches the chosen answer by itself counts all of its tokens.
  const auto whole = options_.ld_alpha ? pairs_of(answer_sums(numbers.log_probs, answers)).chosen
                                       : log_probs.chosen;
  PairTerms terms{{log_probs.chosen, {}, n_chosen}, {log_probs.rejected, {}, n_rejected}};
  if (options_.has_reference) {
    SKEIN_CHECK(step.looks.size() == 1, "the reference has looked at these answers");
    const auto values = pairs_of(step.looks[0]);
    terms.chosen.reference = values.chosen;
    terms.rejected.reference = values.rejected;
  }

  auto whole_terms = terms;
  whole_terms.chosen.log_prob = whole;

  // A mean over the chosen tokens of the step, where the sum is divided by pairs.
  const double per_token = static_cast<double>(step.counts.samples) /
                           static_cast<double>(std::max<int64_t>(1, step.counts.chosen_targets));
  auto loss = at::zeros({}, counts.options());
  for (size_t k = 0; k < options_.losses.size(); ++k) {
    const bool is_sft = options_.losses[k] == PreferenceLoss::kSft;
    const auto losses =
        pair_losses(options_.losses[k], is_sft ? whole_terms : terms, options_.loss);
    loss = loss + options_.weights[k] * (is_sft ? per_token : 1) * losses.sum();
  }
  if (options_.rpo_alpha > 0) loss = loss - options_.rpo_alpha * per_token * whole.sum();
  if (options_.chosen_alpha > 0) loss = loss - options_.chosen_alpha * (whole / n_chosen).sum();

  loss = loss * step.weight;

  const at::NoGradGuard no_grad;
  const bool averages = has(PreferenceLoss::kSimpo) || has(PreferenceLoss::kOrpo);
  const auto told = [&](const Answer& answer) {
    return averages ? answer.log_prob / answer.num_targets : answer.log_prob;
  };
  const auto reward = [&](const Answer& answer) {
    return options_.loss.beta *
           (answer.reference.defined() ? answer.log_prob - answer.reference : told(answer));
  };
  const auto chosen = reward(terms.chosen), rejected = reward(terms.rejected);
  const auto logits = pairs_of(answer_sums(numbers.mean_logits, answers));
  const auto pairs = static_cast<double>(chosen.numel());
  std::vector<at::Tensor> values{(chosen > rejected).sum().to(at::kDouble),
                                 (chosen - rejected).sum(),
                                 chosen.sum(),
                                 rejected.sum(),
                                 told(terms.chosen).sum(),
                                 told(terms.rejected).sum(),
                                 logits.chosen.sum(),
                                 logits.rejected.sum()};
  const auto pair_count = at::full_like(values[0], pairs);
  std::vector<at::Tensor> of(values.size(), pair_count);
  of[6] = n_chosen.sum();
  of[7] = n_rejected.sum();
  if (has_nll()) {
    values.push_back(-whole.sum());
    of.push_back(n_chosen.sum());
  }
  if (has(PreferenceLoss::kOrpo)) {
    const auto odds = log_odds_ratio(terms);
    values.push_back(at::log_sigmoid(odds).sum());
    values.push_back(odds.sum());
    of.insert(of.end(), 2, pair_count);
  }
  return {loss, {at::stack(values), at::stack(of)}};
}

}  // namespace skein::algorithms
