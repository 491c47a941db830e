// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// PPO's critic: what reward is still to come, before each token of a completion.
//
// With R the return, v the value and v_old what it was before the first update, the loss of a token
// is
//
//   coefficient / 2 · max((v - R)², (clip(v, v_old - clip_range, v_old + clip_range) - R)²)
//
// and the mean over all tokens of the step that are not masked out is taken.

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class Critic final : public Algorithm {
 public:
  // Throws InternalError when the model does not score.
  Critic(const model::Model& model, const CriticOptions& options);

  int64_t normaliser(const tensor::Counts& counts) const override;
  std::span<const Metric> metrics() const override;
  Part loss_sum(const tensor::Batch& batch, const StepView& step,
                tensor::Units& units) const override;

 private:
  const model::Model& model_;
  CriticOptions options_;
};

// The sum over a batch's targets, of values (n) float64.
Part value_loss_sum(const at::Tensor& values, const tensor::Episodes& episodes,
                    const CriticOptions& options);

}  // namespace skein::algorithms
