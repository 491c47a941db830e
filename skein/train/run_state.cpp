// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_state.h"

#include <fmt/format.h>

#include <utility>

#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

ModelFiles files_of(const RunStateOptions& options) {
  return {.tuning = options.identity.tuning,
          .config_changes = options.texts.config_changes,
          .share = options.share};
}

// Of another model, in trainer_state.json.
std::string updates_key(const ModelState& other) {
  return fmt::format("{}/num_updates", other.folder());
}

}  // namespace

RunState::RunState(const RunParts& parts, RunStateOptions options)
    : policy_({parts.architecture, parts.model, parts.sharded, parts.optimizer}, files_of(options)),
      metrics_(parts.metrics),
      scaler_(parts.scaler),
      options_(std::move(options)) {}

void RunState::add(ModelState& other) {
  SKEIN_CHECK(!other.folder().empty(), "a second model has a folder of its own");
  others_.push_back(&other);
}

checkpoint::Contents RunState::contents(int64_t step, bool with_optimizer) {
  checkpoint::Contents contents;
  policy_.add_to(contents, with_optimizer);
  if (with_optimizer) {
    for (const auto* other : others_) other->add_to(contents, with_optimizer);
  }
  // The rank that commits writes the texts; the log in them can be long.
  if (policy_.commits()) {
    contents.texts.insert(options_.texts.files.begin(), options_.texts.files.end());
    contents.texts[plan::kStateFile] = trainer_state(step);
  }
  return contents;
}

std::string RunState::trainer_state(int64_t step) {
  plan::TrainerState state{.step = step,
                           .epoch = options_.epochs_of(step),
                           .tokens_seen = metrics_.num_tokens_seen(),
                           .num_updates = policy_.num_updates(),
                           .updates_per_step = options_.updates_per_step,
                           .identity = options_.identity,
                           .best = best_,
                           .judged_since = judged_since_,
                           .loss_scale = scaler_ ? std::optional(scaler_->state()) : std::nullopt,
                           .history = metrics_.history()};
  if (numbers_.ask) state.numbers = numbers_.ask();
  for (const auto* other : others_) {
    state.numbers[updates_key(*other)] = static_cast<double>(other->num_updates());
  }
  return plan::trainer_state_text(state);
}

bool RunState::add_evaluation(int64_t step, double value) {
  const double best = best_ ? best_->value : options_.best.worst();
  if (!options_.best.is_better(value, best)) return false;
  best_before_ = best_;
  best_ = plan::TrainerState::Best{.value = value, .step = step, .metric = options_.best.name()};
  return true;
}

void RunState::drop_evaluation(int64_t step) {
  if (best_step() == step) best_ = best_before_;
}

int64_t RunState::restore(const fs::path& checkpoint) {
  auto state = plan::read_trainer_state(checkpoint);
  restore_tensors(checkpoint);
  saved_history_ = std::move(state.history);
  saved_tokens_seen_ = state.tokens_seen;
  judged_since_ = plan::judged_since(state, options_.identity.objective);
  if (judged_since_ > state.judged_since) {
    log_info(
        "the loss is another than before ({} there, {} here): evaluations up to step {} are "
        "not compared with those to come",
        state.identity.objective, options_.identity.objective, judged_since_);
  }
  // What another metric or objective called the best says nothing about this one.
  const bool is_same = state.best && state.best->metric == options_.best.name();
  if (is_same && state.best->step > judged_since_) best_ = state.best;
  if (scaler_ && state.loss_scale) scaler_->restore(*state.loss_scale);
  if (numbers_.give) numbers_.give(state.numbers);
  return state.step;
}

void RunState::restore_log() { metrics_.restore(saved_history_, saved_tokens_seen_); }

void RunState::restore_tensors(const fs::path& checkpoint) {
  const auto state = plan::read_trainer_state(checkpoint);
  policy_.restore_tensors(checkpoint, state.num_updates);
  for (auto* other : others_) {
    const auto found = state.numbers.find(updates_key(*other));
    if (found == state.numbers.end()) {
      throw IoError(fmt::format("{} has no {} of this run: it was saved by another stage",
                                checkpoint.string(), other->folder()));
    }
    other->restore_tensors(checkpoint, static_cast<int64_t>(found->second));
  }
}

void RunState::restore_weights(const fs::path& checkpoint) { policy_.restore_weights(checkpoint); }

}  // namespace skein::train
