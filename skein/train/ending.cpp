// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/ending.h"

#include <fmt/format.h>

#include "skein/board/board.h"
#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/nothing_left.h"
#include "skein/train/due_evaluation.h"
#include "skein/train/run_folder.h"

namespace skein::train {

namespace {

constexpr const char* kNotSaved = "the last checkpoint could not be saved; see the warning above";

// Which files it has depends on the model, so that no list of what runs write names them. One that
// another model does not have would count beside that: a template, say.
void record_model(const Session& run, const checkpoint::Contents& contents) {
  std::vector<fs::path> paths;
  for (const auto& [name, text] : contents.texts) paths.push_back(run.output / name);
  for (const auto& set : contents.sets) {
    if (set.is_optimizer()) continue;
    const auto layout = checkpoint::lay_out_files(
        set.stem, set.tensors, static_cast<uint64_t>(run.config.checkpoint.max_shard_size));
    const auto folder = run.output / set.folder;
    for (const auto& file : layout.files) paths.push_back(folder / file.name);
    if (!layout.index_name.empty()) paths.push_back(folder / layout.index_name);
  }
  record_files(run.output, start_token(run.output, run.world), paths);
}

// A run may be too short for its loss scale to find its place, or nan_policy may skip every step.
void require_updates(const Session& run, int64_t step) {
  if (step == 0 || run.optimizer->num_updates() > 0) return;
  if (config::is_online(run.config.stage) && !run.scaler) {
    throw UserError(fmt::format(
        "nothing was learned in {} steps, and no model was written: no gradient was finite (see "
        "the warnings above), or no answer counted. filter_groups leaves out groups whose rewards "
        "are all equal, skip_unscored answers without a reward, mask_truncated_completions those "
        "without an end. completions.jsonl shows the answers",
        step));
  }
  const auto advice =
      run.scaler ? fmt::format(
                       "float16 overflowed every time, at last at a loss scale of {}: start again "
                       "with --fresh and bf16=true, dtype=float32, a lower initial_scale_power or "
                       "more steps",
                       run.scaler->scale())
                 : std::string("see the warnings above; lower learning_rate, or look at the data");
  throw UserError(
      fmt::format("all {} updates were left out, because no gradient was finite: the weights are "
                  "as they were at the beginning, and no model was written. {}",
                  step, advice));
}

}  // namespace

bool has_ended(Session& run) {
  if (run.beginning.checkpoint) return false;
  const bool ended = plan::is_finished(run.config, run.architecture, run.identity);
  if (run.world.group.sum(int64_t{run.world.leads_output() && !ended}) > 0) return false;
  const auto state = plan::find_trainer_state(run.output);
  const auto since = state ? plan::judged_since(*state, run.identity.objective) : 0;
  const auto early =
      state ? plan::reason_to_end(run.config.eval, state->history, since) : std::nullopt;
  const auto step = state ? state->step : run.plan.total_steps;
  log_info("{}; model in {}; --fresh trains again",
           plan::nothing_left_text(step, run.plan.total_steps, early), run.output.string());
  return true;
}

bool has_ended(Session& run, int64_t step) {
  const auto early = reason_to_end(run);
  if (step < run.plan.total_steps && !early) return false;
  if (!has_final_model(run.output, step, run.world)) return false;
  log_info("{}; model in {}", plan::nothing_left_text(step, run.plan.total_steps, early),
           run.output.string());
  return true;
}

std::optional<std::string> reason_to_end(const Session& run) {
  return plan::reason_to_end(run.config.eval, run.metrics.history(), run.state.judged_since());
}

void finish(Session& run, int64_t step) {
  require_updates(run, step);
  if (const auto early = reason_to_end(run); early && step < run.plan.total_steps) {
    log_info("ended early, after step {} of {}: {}", step, run.plan.total_steps, *early);
  }
  const auto best = run.state.best_step();
  const bool wants_best = run.config.eval.load_best_model_at_end;
  if (wants_best && best && *best != step) take_best(run);
  if (wants_best && !best && run.world.is_first()) {
    const auto key = plan::BestMetric(run.config.eval).key;
    const bool is_told = std::ranges::any_of(
        run.metrics.history(), [&](const auto& record) { return record.contains(key); });
    if (!is_told) {
      log_warning("load_best_model_at_end: no evaluation has {}: the final model is the last one",
                  key);
    } else {
      log_warning(
          "load_best_model_at_end: no step that was evaluated has been saved (save_steps={:g}): "
          "the "
          "final model is the last one; a smaller save_steps keeps the best",
          run.config.checkpoint.save_steps);
    }
  }
  const auto contents = run.state.contents(step, /*with_optimizer=*/false);
  if (run.world.leads_output()) record_model(run, contents);
  run.store.save_model(contents);
  run.metrics.finish();
}

void save_step(Session& run, int64_t step, bool stopping) {
  run.metrics.phases().enter(Phase::kSave);
  settle_best(run);
  const board::HostWork work("saving");
  run.store.save(step, run.state.contents(step, !run.config.checkpoint.save_only_model),
                 /*rotates=*/!stopping || step == run.plan.total_steps);
}

Outcome conclude(Session& run, int64_t step, bool stopping) {
  run.metrics.phases().enter(Phase::kSave);
  const board::HostWork work("saving");
  const bool saved = settle_save(run);
  if (stopping && (step < run.plan.total_steps || owes_evaluation(run, step))) {
    if (!saved) throw IoError(kNotSaved);
    const auto& keys = run.config.checkpoint;
    log_info("stopped after step {}; {}", step,
             keys.save_only_model    ? "save_only_model: it cannot be continued"
             : run.world.starts_over ? "the same command without --fresh continues"
                                     : "the same command continues");
    return Outcome::kStopped;
  }
  finish(run, step);  // a model may fit where a checkpoint did not
  if (!saved) {
    throw IoError(fmt::format("{}. The model is in {}", kNotSaved, run.output.string()));
  }
  log_info("done: {} steps, model in {}", step, run.output.string());
  return Outcome::kFinished;
}

}  // namespace skein::train
