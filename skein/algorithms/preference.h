// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// DPO and its kin: the policy learns to tell a chosen answer from a rejected one, beside a
// reference that it must not leave too far behind. Formulas: preference_losses.h.

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class Preference final : public Algorithm {
 public:
  Preference(const model::Model& model, const PreferenceOptions& options);

  int64_t normaliser(const tensor::Counts& counts) const override { return counts.samples; }
  std::span<const Metric> metrics() const override { return metrics_; }
  std::span<const Pass> passes() const override;
  at::Tensor look(const tensor::Batch& batch, const Runner& runner) const override;
  Part loss_sum(const tensor::Batch& batch, const StepView& step,
                tensor::Units& units) const override;

 private:
  bool has(PreferenceLoss loss) const;
  bool has_nll() const;
  // Of each answer, from numbers of tokens.
  at::Tensor sums_of(const at::Tensor& log_probs, const tensor::Answers& answers) const;

  const model::Model& model_;
  PreferenceOptions options_;
  std::vector<Metric> metrics_;
};

}  // namespace skein::algorithms
