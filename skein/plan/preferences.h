// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What follows from the keys of stages rm, dpo and kto, which train on answers that people have
// judged: losses, and the reference that a policy is compared with.

#include <optional>
#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/data/rows/row.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/trainer_state.h"

namespace skein::plan {

// What rows a stage trains on.
data::RowKind row_kind(config::TrainingStage stage);

// Of stages dpo and kto, each once.
std::vector<config::PreferenceLoss> losses_of(const config::RunConfig& config);
// What each of them counts.
std::vector<double> loss_weights_of(const config::RunConfig& config);

// What is known of a loss without computing it.
struct LossFacts {
  bool needs_reference = true;
  bool takes_divergence = false;  // others are refused for it
};
LossFacts facts_of(config::PreferenceLoss loss);

// What a policy is compared with.
enum class Reference {
  kNone,             // no loss asks for one
  kWithoutAdapters,  // the model that trains, its adapters left out
  kCopy,             // a frozen model beside it: ref_model, or the weights that the run began with
};
Reference reference_of(const config::RunConfig& config);

// Which weights they are, and how they are computed with; empty: there are none of its own.
// `model`: of the run. Reads a little of them.
ReferenceIdentity reference_identity(const config::RunConfig& config, const HfConfig& model);

// Why documents of up to `longest` tokens do not share the computation of what they begin with, in
// a few words: random draws that would be others, or what `model` does not allow. Empty: they may.
std::string sharing_refusal(const config::RunConfig& config, const HfConfig& model,
                            int64_t longest);
// Do the two answers of a pair, or the answers that a policy samples to one prompt? A question of
// share_prompts.
bool shares_prompts(const config::RunConfig& config, const HfConfig& model);
// The sentence for a run that would if it could; empty: it does, or nobody asks.
std::string sharing_note(const config::RunConfig& config, const HfConfig& model);

// What the loss of an evaluation depends on beside weights and data: two of different objectives
// are not compared.
std::string objective_of(const config::RunConfig& config);

// Throws UserError for keys that contradict each other or the stage.
void check_preference_keys(const config::Resolved& resolved);
// The same for a ref_model that `model` cannot be compared with.
void check_reference(const config::Resolved& resolved, const HfConfig& model);
// What a user should know though the run will start.
std::vector<std::string> preference_warnings(const config::Resolved& resolved);

}  // namespace skein::plan
