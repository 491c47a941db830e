// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/bench.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>

#include "skein/algorithms/pretrain.h"
#include "skein/comm/group.h"
#include "skein/model/model.h"
#include "skein/ops/device.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/hf_config.h"
#include "skein/train/profile.h"
#include "skein/train/update.h"

namespace skein::train {
namespace {

// Random tokens, the same at every step, so that the loss must fall.
tensor::Batch make_batch(const BenchOptions& options, int64_t vocabulary) {
  at::manual_seed(1);
  const auto text = at::randint(0, vocabulary, {options.rows, options.tokens + 1}, at::kLong);
  return tensor::to_device({text.slice(1, 0, options.tokens).contiguous(),
                            text.slice(1, 1, options.tokens + 1).contiguous(),
                            at::arange(options.rows), options.rows * options.tokens},
                           options.device);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double BenchResult::median_seconds() const {
  auto sorted = seconds;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

BenchResult bench_training(const BenchOptions& options) {
  const auto config = plan::read_hf_config(options.model);
  const auto model = model::build(config, {.dtype = options.dtype});
  const algorithms::Pretrain algorithm(*model);
  parallel::Sharded sharded(
      model->table(),
      {.stage = {options.stage}, .recompute = options.recompute, .device = options.device},
      comm::Group());
  BenchResult result{.num_parameters = model->table().num_elements()};
  const auto begin = std::chrono::steady_clock::now();
  sharded.initialise(1);
  ops::synchronise(options.device.is_cuda());
  result.first_weights_seconds = seconds_since(begin);
  optim::AdamW optimizer(sharded.owned_ranges(), {.weight_decay = 0.1}, sharded.memory());
  optimizer.refresh_masters();
  const auto batch = make_batch(options, model->vocab_size());

  int64_t step = 0;
  Phases phases;
  const auto run_step = [&] {
    const auto [loss, norm] =
        update({algorithm, sharded, optimizer, phases},
               {std::span(&batch, 1), batch.num_targets, {.seed = 1, .step = step++}},
               {.learning_rate = 1e-4, .max_grad_norm = 1.0});
    const double value = loss.item<double>();    // waits for the loss …
    ops::synchronise(options.device.is_cuda());  // … and for the update
    return value;
  };

  result.first_loss = run_step();
  for (int64_t i = 1; i < options.warmup_steps; ++i) run_step();
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    result.last_loss = run_step();
    result.seconds.push_back(seconds_since(start));
  }
  result.peak_flat_bytes = sharded.memory().peak_bytes();
  result.peak_device_bytes = ops::device_memory(options.device.is_cuda()).peak;
  if (!options.trace.empty()) {
    profile(options.trace, options.device.is_cuda(), [&] {
      run_step();
      run_step();
    });
  }
  return result;
}

}  // namespace skein::train
