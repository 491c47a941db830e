// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The reward model: a score for each answer, higher for the chosen one of a pair than for the
// rejected one (Bradley and Terry), by a margin where the pair has one.
//
//   loss of a pair = -log sigmoid(chosen - rejected - margin) + centring · (chosen + rejected)²

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class Reward final : public Algorithm {
 public:
  // Throws InternalError when the model does not score.
  Reward(const model::Model& model, const RewardOptions& options);

  int64_t normaliser(const tensor::Counts& counts) const override { return counts.samples; }
  std::span<const Metric> metrics() const override;
  Part loss_sum(const tensor::Batch& batch, const StepView& step,
                tensor::Units& units) const override;

 private:
  const model::Model& model_;
  RewardOptions options_;
};

}  // namespace skein::algorithms
