// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One update of the weights: forward and backward of this rank's micro-batches, the norm of the
// summed gradient, the optimizer's step. The same for every loop, for bench and for tests.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "skein/algorithms/algorithm.h"
#include "skein/config/run_config.h"
#include "skein/data/loader.h"
#include "skein/optim/optimizer.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/rates/loss_scaler.h"
#include "skein/tensor/batch.h"
#include "skein/train/onlookers.h"
#include "skein/train/phases.h"

namespace skein::train {

// Who takes part, on this rank.
struct Trainer {
  const algorithms::Algorithm& algorithm;
  parallel::Sharded& sharded;
  optim::Optimizer& optimizer;
  Phases& phases;
  // Called before weights and optimizer states change, when something still reads them.
  std::function<void()> before_change = {};
  const Onlookers* onlookers = nullptr;  // null: the algorithm has no passes
};

struct StepData {
  std::span<const tensor::Batch> micro_batches;  // this rank's, on any device; equally many on all
  tensor::Counts counts;                         // of the whole step, over all ranks
  tensor::StepKey key;
  std::span<const tensor::Batch> mismatched = {};  // StepBatches::mismatched
};

struct UpdateOptions {
  double learning_rate = 0;
  double max_grad_norm = 0;  // 0: no clipping
  double loss_scale = 1;     // backward runs on the loss times this; see plan/rates/loss_scaler.h
  // An update whose gradient is not finite is left out. Without this, and without clipping, nothing
  // about an update has to wait for the norm: the host updates its ranges while backward runs.
  bool skips_non_finite = true;
};

// Those of a run's step; `peak_rate`: plan::peak_learning_rate(). `scaler`: of float16, else null.
struct RunSteps {
  const config::RunConfig& config;
  const plan::LossScaler* scaler = nullptr;
  double peak_rate = 0;
  int64_t total = 0;
};
UpdateOptions update_options(const RunSteps& steps, int64_t step);

std::vector<tensor::Batch> on_device(std::span<const tensor::HostBatch> batches, at::Device device);

// 1 / count in two factors. Backward carries the power of two, which moves exponents alone:
// gradients round alike, in 16 bits too, whatever the number of targets is. The rest, in (0.5, 1],
// meets them where they are fp32 or wider: in the norm and in the optimizer.
struct Normaliser {
  double power_of_two = 1;
  double rest = 1;  // the gradient is this times Sharded::gradient_slices()
};
Normaliser normaliser(int64_t count);  // Algorithm::normaliser() of a step

struct Update {
  // This rank's share of the step's mean loss: float64, on the device. The sum over ranks is the
  // mean.
  at::Tensor loss;
  algorithms::MetricSums metrics{};  // of this rank's samples
  parallel::Sharded::GradientNorm norm{};
  // The host has made it in backward, before anybody knew whether the gradient is finite.
  bool made_early = false;
};

// Collective; waits for no GPU.
Update update(const Trainer& trainer, const StepData& data, const UpdateOptions& options);

}  // namespace skein::train
