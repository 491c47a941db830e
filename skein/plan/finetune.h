// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do the keys of fine-tuning come to? From FinetuneConfig to a Tuning, in one place: `skein
// plan`, the launcher and the ranks ask here.

#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/file.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/trainer_state.h"
#include "skein/plan/tuning.h"

namespace skein::plan {

// What trains. An adapter that a run goes on with (adapter_name_or_path) says so itself, whatever
// the other keys say. Throws UserError, also for an adapter_config.json that we cannot compute.
Tuning tuning_of(const config::RunConfig& config);
// The same, decided for the model.
TunedModel tuned_model(const config::RunConfig& config, const HfConfig& model);

// The adapter_config.json that a LoRA run writes: PEFT's, with the names of the modules that
// lora_target `all` has come to. Empty where no adapter trains.
std::string adapter_config_of(const config::RunConfig& config, const HfConfig& model);

// What a checkpoint is compared with. Reads a little of the base's weights.
TuningIdentity tuning_identity(const config::RunConfig& config, const HfConfig& model);

// Whoever goes on with an adapter reads text as that was trained to: where no tokenizer is named,
// the adapter's own becomes tokenizer_name_or_path, its template with it. For every command that
// loads a run's configuration, right behind that: all who read it then agree.
void take_adapter_tokenizer(config::Resolved& resolved);

// Throws UserError where keys of fine-tuning are given that would silently have no effect, because
// finetuning_type was forgotten, and for what cannot be trained.
void check_finetune_keys(const config::Resolved& resolved);
// Of new tokens without rows, beside an adapter: so many are missing, with them the base has
// `wanted`.
std::string no_rows_message(int64_t missing, int64_t wanted);
// Keys without effect, and those that an adapter overrules.
std::vector<std::string> finetune_warnings(const config::Resolved& resolved);

// The tensors of adapter_name_or_path are those of an adapter of this model, and of this base.
// Throws UserError with counts and names, IoError for a broken file.
void check_adapter(const config::RunConfig& config, const HfConfig& model);

}  // namespace skein::plan
