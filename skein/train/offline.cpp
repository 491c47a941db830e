// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Read top to bottom: build, resume, then step until done.

#include "skein/train/offline.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/algorithms/algorithm.h"
#include "skein/checkpoint/store.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/data/loader.h"
#include "skein/optim/schedule.h"
#include "skein/train/nan_guard.h"
#include "skein/train/run_folder.h"
#include "skein/train/run_plan.h"
#include "skein/train/run_state.h"

namespace skein::train {
namespace {

int64_t vocabulary(const model::HfConfig& architecture) {
  return std::visit([](const auto& a) { return a.vocab_size; }, architecture.architecture);
}

}  // namespace

Outcome run_offline(const config::Resolved& resolved, const config::BatchPlan& batches,
                    World& world) {
  const auto& config = resolved.config;
  const auto output = output_folder(config.checkpoint);
  prepare_folder(output, resolved, world);

  const fs::path folder = config.model.model_name_or_path;
  const auto architecture = model::read_hf_config(folder);
  const auto model =
      model::build(architecture, {.dtype = working_dtype(config.model.dtype, world.device)});
  parallel::Sharded sharded(
      model->table(),  // ddp, zero1, zero2 or zero3
      {.stage = stage_of(config.parallel.distributed_strategy),
       .recompute = config.model.gradient_checkpointing,
       .fp32_gradients = config.optimizer.grad_accum_fp32 || batches.accumulation > 1,
       .device = world.device},
      world.group);
  optim::AdamW optimizer(sharded.owned_ranges(), config.optimizer, sharded.memory());
  const auto algorithm = algorithms::build(config.stage, *model);  // turns a batch into a loss
  const auto data_seed = config.data_seed.value_or(config.seed);
  const data::Loader loader({.data = config.data,
                             .per_device_batch = batches.per_device,
                             .accumulation = batches.accumulation,
                             .seed = static_cast<uint64_t>(data_seed),
                             .vocab_size = vocabulary(architecture)},
                            world.group.rank(), world.group.size());
  const auto plan = plan_run(config, loader.steps_per_epoch());
  MetricLog metrics(output, world.is_first());
  checkpoint::CheckpointStore store(
      {.output = output,
       .rank = world.group.rank(),
       .size = world.group.size(),
       .token = world.token,
       .save_total_limit = config.checkpoint.save_total_limit.value_or(0),
       .conditions = checkpoint::current_conditions(
           world.group.size(), stage_of(config.parallel.distributed_strategy).number,
           at::get_num_threads())},
      world.store);

  RunState state(architecture, *model, sharded, optimizer, metrics);
  state.carry_files(folder);
  state.set_identity({loader.data_digest(), batches.global, data_seed, plan.total_steps,
                      loader.steps_per_epoch()});
  int64_t step = 0;
  if (const auto newest = newest_checkpoint(output, world)) {
    step = state.restore(*newest);
    log_info("continuing {} at step {} of {}", newest->string(), step, plan.total_steps);
  } else if (config.model.train_from_scratch) {
    state.initialise(static_cast<uint64_t>(config.seed));
  } else {
    state.load_weights(folder);
  }
  log_info("{} parameters, {} steps, {} bytes of weights, gradients and states on this rank",
           model->table().num_elements(), plan.total_steps, sharded.memory().bytes());

  bool stopping = false;
  for (; step < plan.total_steps && !stopping; ++step) {
    const double learning_rate = config.optimizer.learning_rate *
                                 optim::schedule_factor(config.schedule, step, plan.total_steps);
    const tensor::StepKey key{static_cast<uint64_t>(config.seed), step};
    const auto data = loader.batches(step);

    // The loss is one mean over the targets of all micro-batches on all ranks, so gradients are
    // summed, never averaged.
    auto loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(world.device));
    const auto count = static_cast<int64_t>(data.micro_batches.size());
    for (int64_t i = 0; i < count; ++i) {
      sharded.begin_micro_batch(i, count);  // the stage decides when to reduce
      const auto batch = tensor::to_device(data.micro_batches[i], world.device);
      const auto part = algorithm->loss_sum(batch, key, sharded) / data.num_targets;
      torch::autograd::backward({part});
      sharded.end_micro_batch();
      loss += part.detach();
    }

    const auto [norm, decision] = sharded.gradient_norm(config.optimizer.max_grad_norm);
    optimizer.step(learning_rate, decision);  // clips; left out when the norm is not finite
    sharded.publish();
    metrics.add_step(loss, data.num_targets + static_cast<int64_t>(data.samples.size()));

    const double grad_norm = norm.item<double>();
    if (judge(grad_norm, config.optimizer.nan_policy, step + 1, data.samples, sharded) ==
        NanVerdict::kRollBack) {
      store.finish();
      const auto newest = newest_checkpoint(output, world);
      if (!newest)
        throw UserError(
            "nan_policy=rollback: there is no checkpoint to go back to yet; lower save_steps");
      state.restore_tensors(*newest);
    }

    // The one agreement of a step; everything else that branches depends on the step alone.
    stopping = world.group.sum(int64_t{world.stop_requested()}) > 0;
    if (due(step + 1, plan.log_every, plan.total_steps)) {
      const double mean_loss = world.group.sum(metrics.take_loss_share());
      metrics.write({step + 1, plan.total_steps, data.epoch, grad_norm, learning_rate,
                     sharded.memory().peak_bytes()},
                    mean_loss);
    }
    if (stopping || due(step + 1, plan.save_every, plan.total_steps))
      store.save(step + 1, state.contents(step + 1));
  }

  if (!store.finish())
    throw IoError("the last checkpoint could not be saved; see the warning above");
  if (stopping && step < plan.total_steps) {
    log_info("stopped after step {}; the same command continues", step);
    return Outcome::kStopped;
  }
  store.save_model(state.contents(step));
  log_info("done: {} steps, model in {}", step, output.string());
  return Outcome::kFinished;
}

}  // namespace skein::train
