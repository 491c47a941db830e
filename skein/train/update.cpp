// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/update.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

namespace skein::train {
namespace {

// The loss is one mean over the targets of all micro-batches on all ranks, so gradients are summed,
// never averaged.
at::Tensor accumulate_gradients(const Trainer& trainer, const StepData& data) {
  auto& [algorithm, sharded, optimizer, phases, before_change] = trainer;
  const auto device = sharded.memory().device();
  const double weight = 1.0 / static_cast<double>(data.num_targets);
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

Update update(const Trainer& trainer, const StepData& data, const UpdateOptions& options) {
  Update result{.loss = accumulate_gradients(trainer, data)};
  trainer.phases.enter(Phase::kOptimizer);
  result.norm = trainer.sharded.gradient_norm(options.max_grad_norm);
  if (trainer.before_change) trainer.before_change();
  trainer.optimizer.step(options.learning_rate, result.norm.decision);  // clips
  trainer.sharded.publish();
  return result;
}

}  // namespace skein::train
