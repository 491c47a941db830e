// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The policy learns from completions that it has sampled itself, each token of which has an
// advantage: the losses of stages grpo, rloo and ppo. Formulas: policy_losses.h.
//
// Log-probabilities and entropy are those at the sampling temperature. Entropy is told, never
// rewarded: the head gives it no gradient.

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class PolicyGradient final : public Algorithm {
 public:
  PolicyGradient(const model::Model& model, const PolicyGradientOptions& options);

  int64_t normaliser(const tensor::Counts& counts) const override;
  std::span<const Metric> metrics() const override { return metrics_; }
  // Numbers of tokens come with the batch's episodes, not from passes: they live for a rollout, in
  // which there may be several steps.
  Part loss_sum(const tensor::Batch& batch, const StepView& step,
                tensor::Units& units) const override;

 private:
  const model::Model& model_;
  PolicyGradientOptions options_;
  std::vector<Metric> metrics_;
};

}  // namespace skein::algorithms
