// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/due_evaluation.h"

#include "skein/train/evaluate.h"

namespace skein::train {
namespace {

// What decides which model is the best.
std::optional<double> evaluate_and_log(Session& run, int64_t step, double epoch,
                                       StopAgreement& stop) {
  run.metrics.phases().enter(Phase::kEvaluate);
  const auto evaluation =
      evaluate({run.loader, *run.algorithm, run.sharded, run.onlookers.get()}, run.world, stop);
  if (!evaluation) return std::nullopt;
  run.metrics.write(step, epoch, *evaluation);
  return metric_of(*evaluation, run.config.eval.metric_for_best_model);
}

}  // namespace

void note_evaluation(Session& run, int64_t step, double value) {
  settle_best(run);
  if (run.state.add_evaluation(step, value)) run.store.protect(step);
}

void note_saved_evaluation(Session& run, int64_t step, double value) {
  if (run.state.add_evaluation(step, value)) run.store.protect_saved(step);
}

bool evaluate_step(Session& run, int64_t step, double epoch, bool saves, StopAgreement& stop) {
  const auto value = evaluate_and_log(run, step, epoch, stop);
  if (!value) return false;
  // Only a step that is saved can become the best model.
  if (saves) note_evaluation(run, step, *value);
  return true;
}

bool owes_evaluation(const Session& run, int64_t step) {
  return step > 0 && run.plan.evals_at(step) && !run.metrics.has_evaluation(step);
}

bool evaluate_first(Session& run, int64_t step, StopAgreement& stop) {
  if (step == 0) {
    return !run.config.eval.eval_on_start || evaluate_and_log(run, 0, 0, stop).has_value();
  }
  if (!owes_evaluation(run, step)) return true;
  const auto value = evaluate_and_log(run, step, run.loader.batches(step - 1).epoch, stop);
  if (!value) return false;
  if (run.plan.saves_at(step)) note_saved_evaluation(run, step, *value);  // as without the stop
  return true;
}

}  // namespace skein::train
