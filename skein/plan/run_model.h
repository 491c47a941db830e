// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which model does a run train? What the config.json of its folder describes, changed as the run's
// keys ask; the changes are in what is saved too.

#include <map>
#include <string>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {

// Throws UserError where a key does not fit the model.
HfConfig read_run_model(const config::RunConfig& config);

// Throws UserError for a reward model.
void require_text(const HfConfig& model, const fs::path& folder);

// new_special_tokens in what is saved of the tokenizer, texts of files by their names.
void add_new_tokens(const config::ModelConfig& model, std::map<std::string, std::string>& files);

// Does rope_scaling change the model's positions? Not where they are stretched so already, or need
// not be. Throws UserError where it does not fit the model.
bool stretches_positions(const config::RunConfig& config);
// "rope_scaling: …" where nothing needs to be stretched, else "".
std::string rope_scaling_note(const config::RunConfig& config);

}  // namespace skein::plan
