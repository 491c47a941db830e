// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Turns a batch into a loss. One file pair per algorithm.

#include <ATen/core/Tensor.h>

#include <memory>

#include "skein/config/run_config.h"
#include "skein/model/model.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/units.h"

namespace skein::algorithms {

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // A float64 scalar: the sum over the batch's targets, each times `weight`. In training that is
  // the power of two near 1 over the targets of the whole step, of all micro-batches and ranks
  // (train::Normaliser), and the sum is what backward starts from.
  virtual at::Tensor loss_sum(const tensor::Batch& batch, const tensor::StepKey& key, double weight,
                              tensor::Units& units) const = 0;
};

struct LossOptions {
  // Share of every target that is spread over the vocabulary, as transformers' LabelSmoother does
  // it: in evaluations too.
  double label_smoothing = 0;
};

// `model` must outlive the algorithm.
std::unique_ptr<Algorithm> build(config::TrainingStage stage, const model::Model& model,
                                 const LossOptions& options = {});

}  // namespace skein::algorithms
