// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <bit>

#include "skein/trace/trace.h"

namespace skein::train {
namespace {

// The loss is one mean over the targets of all micro-batches on all ranks, so gradients are summed,
// never averaged. Returns this rank's sum of losses, each times `weight`.
at::Tensor accumulate_gradients(const Trainer& trainer, const StepData& data, double weight) {
  auto& [algorithm, sharded, optimizer, phases, before_change] = trainer;
  const auto device = sharded.memory().device();
  auto loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  const auto count = static_cast<int64_t>(data.micro_batches.size());
  for (int64_t i = 0; i < count; ++i) {
    phases.enter(Phase::kForward);
    sharded.begin_micro_batch(i, count);  // the stage decides when to reduce
    const auto batch = tensor::to_device(data.micro_batches[i], device);
    const auto part = algorithm.loss_sum(batch, data.key, weight, sharded);
    phases.enter(Phase::kBackward);
    torch::autograd::backward({part});
    sharded.end_micro_batch();
    loss += part.detach();
  }
  return loss;
}

}  // namespace

Normaliser normaliser(int64_t num_targets) {
  const auto power = static_cast<double>(std::bit_floor(static_cast<uint64_t>(num_targets)));
  return {1 / power, power / static_cast<double>(num_targets)};
}

Update update(const Trainer& trainer, const StepData& data, const UpdateOptions& options) {
  const auto [power_of_two, unscaled_rest] = normaliser(data.num_targets);
  const double rest = unscaled_rest / options.loss_scale;
  const auto sum = accumulate_gradients(trainer, data, power_of_two * options.loss_scale);
  Update result{.loss = sum * rest};
  trainer.phases.enter(Phase::kOptimizer);
  {
    const trace::Scope scope("optimizer", "gradient norm", trace::Clock::kDevice);
    result.norm = trainer.sharded.gradient_norm({.max_norm = options.max_grad_norm, .scale = rest});
  }
  if (trainer.before_change) trainer.before_change();
  {
    const trace::Scope scope("optimizer", "step", trace::Clock::kDevice);
    trainer.optimizer.step(options.learning_rate, result.norm.decision);  // scales and clips
  }
  trainer.sharded.publish();
  return result;
}

}  // namespace skein::train
