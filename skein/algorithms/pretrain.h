// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Next-token prediction over whole blocks, or over the targets of documents.

#include "skein/algorithms/algorithm.h"

namespace skein::algorithms {

class Pretrain final : public Algorithm {
 public:
  explicit Pretrain(const model::Model& model, const LossOptions& options = {})
      : model_(model), options_(options) {}
  at::Tensor loss_sum(const tensor::Batch& batch, const tensor::StepKey& key, double weight,
                      tensor::Units& units) const override;

 private:
  const model::Model& model_;
  LossOptions options_;
};

}  // namespace skein::algorithms
