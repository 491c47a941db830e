// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Read top to bottom: begin, then step until done.

#include "skein/train/offline.h"

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/ops/device.h"
#include "skein/train/due_evaluation.h"
#include "skein/train/ending.h"
#include "skein/train/nan_guard.h"
#include "skein/train/session.h"
#include "skein/train/step_trace.h"
#include "skein/train/stop_agreement.h"
#include "skein/train/update.h"

namespace skein::train {
Outcome run_offline(const config::Resolved& resolved, const config::BatchPlan& batches,
                    World& world) {
  Session run(resolved, batches, world);
  const auto& plan = run.plan;
  if (has_ended(run)) return Outcome::kFinished;
  int64_t step = begin(run);
  if (has_ended(run, step)) return Outcome::kFinished;

  NanGuard guard(run.config.optimizer.nan_policy, run.sharded, run.scaler.get());
  auto& phases = run.metrics.phases();
  StopAgreement stop(world.group);
  const Trainer trainer{
      *run.algorithm,     run.sharded, *run.optimizer, phases, [&run] { before_update(run); },
      run.onlookers.get()};
  bool stopping = !evaluate_first(run, step, stop);
  auto early = reason_to_end(run);
  StepTrace step_trace(run, step);
  while (step < plan.total_steps && !stopping && !early) {
    step_trace.before(step);
    phases.enter(Phase::kData);
    const tensor::StepKey key{static_cast<uint64_t>(run.config.seed), step};
    const auto data = run.loader.batches(step);
    board::set_board_step(step, data.samples);

    stop.ask(world.stop_requested());
    const auto micro_batches = on_device(data.micro_batches, world.device);
    const auto mismatched = on_device(data.mismatched, world.device);
    // The loss scale, and which update this is, depend on how the step before it went.
    if (run.scaler) judge_and_log(run, guard, step);
    const auto options =
        update_options({run.config, run.scaler.get(), run.peak_rate, run.plan.total_steps}, step);
    const auto done = update(trainer, {micro_batches, data.counts, key, mismatched}, options);
    // The step before this one: its norm is there without waiting.
    judge_and_log(run, guard, step);
    guard.watch(++step, done, data.samples);

    phases.enter(Phase::kOther);
    run.metrics.add_step(step, done, data.lengths, data.shared);
    // The one agreement of a step; everything else that branches depends on the step alone.
    stopping = stop.answer();
    const bool saves = plan.saves_at(step);
    const bool evaluates = plan.evals_at(step);
    // What is saved or measured has been judged.
    if (stopping || saves || evaluates || plan.logs_at(step)) judge_and_log(run, guard, step);
    if (plan.logs_at(step)) {
      run.metrics.write({.step = step,
                         .epoch = data.epoch,
                         .means = run.metrics.take_means(world.group),
                         .grad_norm = done.norm.norm.item<double>(),
                         .learning_rate = options.learning_rate,
                         .loss_scale = run.scaler ? options.loss_scale : 0,
                         .peak_memory_bytes = run.sharded.memory().peak_bytes(),
                         .peak_host_bytes = run.sharded.memory().all_peak_bytes().pinned_host,
                         .device_memory = ops::device_memory(world.device.is_cuda())});
    }
    // What stops saves at once, and leaves the evaluation to the continuation.
    if (evaluates && !stopping) {
      stopping = !evaluate_step(run, step, data.epoch, saves, stop);
      early = reason_to_end(run);
    }
    if (saves || stopping || (early && plan.save_every > 0)) save_step(run, step, stopping);
    step_trace.after(step, data);
  }

  step_trace.finish();
  stop.finish();
  judge_and_log(run, guard, step);
  return conclude(run, step, stopping);
}

}  // namespace skein::train
