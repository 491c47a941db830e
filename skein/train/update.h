// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One update of the weights: forward and backward of this rank's micro-batches, the norm of the
// summed gradient, the optimizer's step. The same for every loop, for bench and for tests.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>

#include "skein/algorithms/algorithm.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/tensor/batch.h"
#include "skein/train/phases.h"

namespace skein::train {

// Who takes part, on this rank.
struct Trainer {
  const algorithms::Algorithm& algorithm;
  parallel::Sharded& sharded;
  optim::AdamW& optimizer;
  Phases& phases;
  // Called before weights and optimizer states change, when something still reads them.
  std::function<void()> before_change = {};
};

struct StepData {
  std::span<const tensor::Batch> micro_batches;  // this rank's, on any device; equally many on all
  int64_t num_targets = 0;                       // of the whole step, over all ranks
  tensor::StepKey key;
};

struct UpdateOptions {
  double learning_rate = 0;
  double max_grad_norm = 0;  // 0: no clipping
};

struct Update {
  // This rank's share of the mean loss over the step's targets: float64, on the device. The sum
  // over ranks is the mean.
  at::Tensor loss;
  parallel::Sharded::GradientNorm norm;
};

// Collective; waits for no GPU. The update is left out where the norm is not finite.
Update update(const Trainer& trainer, const StepData& data, const UpdateOptions& options);

}  // namespace skein::train
