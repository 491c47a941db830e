// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/policy_gradient.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "skein/algorithms/episodes.h"
#include "skein/algorithms/policy_losses.h"
#include "skein/core/error.h"

namespace skein::algorithms {

PolicyGradient::PolicyGradient(const model::Model& model, const PolicyGradientOptions& options)
    : model_(model), options_(options), metrics_(policy_metrics(options)) {
  SKEIN_CHECK(options.loss != config::PolicyLoss::kDrGrpo || options.max_completion_length > 0,
              "dr_grpo divides by the longest completion");
}

int64_t PolicyGradient::normaliser(const tensor::Counts& counts) const {
  return policy_normaliser(counts, options_);
}

Part PolicyGradient::loss_sum(const tensor::Batch& batch, const StepView& step,
                              tensor::Units& units) const {
  const auto numbers = target_numbers(
      model_, batch, step.key, units,
      {.temperature = options_.temperature, .entropy = true, .adapters = step.key.adapters});
  auto [loss, metrics] =
      policy_loss_sum(numbers.log_probs, numbers.entropy, *batch.episodes, options_);
  return {loss * step.weight, std::move(metrics)};
}

}  // namespace skein::algorithms
