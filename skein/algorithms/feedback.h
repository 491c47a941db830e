// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// KTO: answers that were judged alone, as desirable or not.
//
// With r = log p - log p_reference, of which kl = max(0, mean over the step of r of answers to
// other prompts) is a constant, the loss of an answer is
//
//   desirable    w (1 - sigmoid(beta (r - kl)))
//   undesirable  v (1 - sigmoid(beta (kl - r)))
//
// and without kl (apo_zero_unpaired) w (1 - sigmoid(beta r)) and v sigmoid(beta r).

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class Feedback final : public Algorithm {
 public:
  Feedback(const model::Model& model, const FeedbackOptions& options);

  int64_t normaliser(const tensor::Counts& counts) const override { return counts.samples; }
  std::span<const Metric> metrics() const override { return metrics_; }
  std::span<const Pass> passes() const override { return passes_; }
  at::Tensor look(const tensor::Batch& batch, const Runner& runner) const override;
  bool spans_step() const override { return options_.with_kl; }
  std::vector<double> settle(std::span<const double> sums,
                             const tensor::Counts& counts) const override;
  Part loss_sum(const tensor::Batch& batch, const StepView& step,
                tensor::Units& units) const override;

 private:
  const model::Model& model_;
  FeedbackOptions options_;
  std::vector<Pass> passes_;
  std::vector<Metric> metrics_;
};

}  // namespace skein::algorithms
