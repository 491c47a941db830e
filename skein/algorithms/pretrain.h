// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Next-token prediction over whole blocks, or over the targets of documents.

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class Pretrain final : public Algorithm {
 public:
  explicit Pretrain(const model::Model& model, const PretrainOptions& options = {})
      : model_(model), options_(options) {}

  int64_t normaliser(const tensor::Counts& counts) const override { return counts.targets; }
  bool is_token_mean() const override { return true; }
  Part loss_sum(const tensor::Batch& batch, const StepView& step,
                tensor::Units& units) const override;

 private:
  const model::Model& model_;
  PretrainOptions options_;
};

}  // namespace skein::algorithms
