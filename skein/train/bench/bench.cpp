// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/bench/bench.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>

#include "skein/algorithms/pretrain.h"
#include "skein/comm/link_rate.h"
#include "skein/core/random.h"
#include "skein/model/model.h"
#include "skein/ops/device.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/tuning.h"
#include "skein/tensor/host_stash.h"
#include "skein/train/profile.h"
#include "skein/train/update.h"

namespace skein::train {
namespace {

// Random tokens, the same at every step, so that the loss must fall; other ones on each rank.
tensor::Batch make_batch(const BenchOptions& options, int64_t vocabulary, int rank) {
  if (options.packed) {
    return tensor::to_device(packed_rows(options, vocabulary), options.device);
  }
  at::manual_seed(1 + static_cast<uint64_t>(rank));
  const auto text = at::randint(0, vocabulary, {options.rows, options.tokens + 1}, at::kLong);
  return tensor::to_device({text.slice(1, 0, options.tokens).contiguous(),
                            text.slice(1, 1, options.tokens + 1).contiguous(),
                            at::arange(options.rows), options.rows * options.tokens},
                           options.device);
}

model::BuildOptions build_options(const BenchOptions& options) {
  model::BuildOptions build{.dtype = options.dtype};
  if (options.lora_rank == 0) return build;
  build.tuning.lora = adapter::AdapterConfig{
      .rank = options.lora_rank,
      .alpha = 2 * static_cast<double>(options.lora_rank),
      .targets = {.kind = adapter::ModuleChoice::Kind::kNames, .names = options.lora_targets}};
  if (options.four_bits) build.tuning.four_bits.emplace();
  return build;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

tensor::HostBatch packed_rows(const BenchOptions& options, int64_t vocabulary) {
  constexpr uint64_t kKey = 1;
  constexpr uint64_t kShortest = 256, kLongest = 2047;
  tensor::HostBatch batch{.rows = 1, .length = options.rows * options.tokens};
  uint64_t drawn = 0;
  const auto next = [&](uint64_t count) { return random::philox(kKey, drawn++).word[0] % count; };
  for (int64_t row = 0; row < options.rows; ++row) {
    for (int64_t left = options.tokens; left > 0;) {
      const auto wanted = static_cast<int64_t>(kShortest + next(kLongest - kShortest + 1));
      const int64_t length = std::min(wanted, left);
      const auto prompt = static_cast<int64_t>(options.masked * static_cast<double>(length - 1));
      const auto begin = static_cast<int64_t>(batch.tokens.size());
      for (int64_t t = 0; t < length; ++t) {
        batch.tokens.push_back(static_cast<int64_t>(next(static_cast<uint64_t>(vocabulary))));
      }
      for (int64_t t = 0; t < length; ++t) {
        const bool target = t >= prompt && t + 1 < length;
        batch.targets.push_back(target ? batch.tokens[static_cast<size_t>(begin + t + 1)]
                                       : tensor::kIgnore);
        batch.num_targets += target;
      }
      batch.documents.push_back(static_cast<int64_t>(batch.documents.size()));
      batch.document_ends.push_back(static_cast<int32_t>(begin + length));
      left -= length;
    }
  }
  return batch;
}

double BenchResult::median_seconds() const {
  auto sorted = seconds;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

BenchResult bench_training(const BenchOptions& options, comm::Group group) {
  ops::begin_peak(options.device.is_cuda());
  const auto config = plan::read_hf_config(options.model);
  const auto build = build_options(options);
  const auto model = model::build(config, build);
  const algorithms::Pretrain algorithm(*model);
  const auto stash =
      options.offload_activations
          ? std::make_shared<tensor::HostStash>(tensor::make_copy_engine(options.device))
          : nullptr;
  parallel::Sharded sharded(model->table(),
                            {.stage = parallel::kStages[options.stage],
                             .recompute = options.recompute,
                             .stash = stash,
                             .fp32_gradients = options.accumulation > 1,
                             .device = options.device,
                             .offload = options.offload,
                             .disk = options.disk},
                            group);
  const auto shapes = plan::tune(config.architecture, build.tuning).shapes;
  BenchResult result{.num_parameters = shapes.numel(), .num_trainable = shapes.trainable_numel()};
  const auto begin = std::chrono::steady_clock::now();
  sharded.initialise(1);
  ops::synchronise(options.device.is_cuda());
  result.first_weights_seconds = seconds_since(begin);
  optim::AdamW optimizer(sharded.owned_ranges(), {.weight_decay = 0.1}, sharded.memory());
  optimizer.refresh_masters();
  const auto batch = make_batch(options, model->vocab_size(), group.rank());
  const std::vector<tensor::Batch> micro_batches(static_cast<size_t>(options.accumulation), batch);
  result.num_targets = batch.num_targets * options.accumulation * group.size();
  // Adapters begin at nothing: the loss falls visibly only at their usual rate.
  const double rate = options.lora_rank > 0 ? 1e-3 : 1e-4;

  int64_t step = 0;
  Phases phases;
  const auto run_step = [&] {
    const auto done = update(
        {algorithm, sharded, optimizer, phases},
        {micro_batches, {.targets = result.num_targets}, {.seed = 1, .step = step++}},
        {.learning_rate = rate, .max_grad_norm = options.max_grad_norm, .skips_non_finite = false});
    const double value = done.loss.item<double>();  // waits for the loss …
    // … and for the update, but for one that the host makes beside the next step.
    ops::synchronise(options.device.is_cuda() && !options.offload.any());
    return value;
  };

  result.first_loss = group.sum(run_step());
  for (int64_t i = 1; i < options.warmup_steps; ++i) run_step();
  phases.take();
  const double cpu_before = comm::process_cpu_seconds();
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    result.last_loss = run_step();
    result.seconds.push_back(seconds_since(start));
  }
  result.cpu_seconds =
      (comm::process_cpu_seconds() - cpu_before) / static_cast<double>(options.steps);
  result.last_loss = group.sum(result.last_loss);
  if (!options.device.is_cuda()) {  // there the host runs ahead, and waits where it reads the loss
    result.update_seconds =
        phases.take()[static_cast<size_t>(Phase::kOptimizer)] / static_cast<double>(options.steps);
  }
  optimizer.states();                     // the last update has ended,
  sharded.slices_to_save(Access::kRead);  // and all know its weights
  result.peak_flat_bytes = sharded.memory().peak_bytes();
  result.peak_host_bytes = sharded.memory().all_peak_bytes().pinned_host;
  if (stash) result.peak_stash_bytes = stash->host_bytes();
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
