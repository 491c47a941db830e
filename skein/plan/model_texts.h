// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which texts does a run save beside the weights?

#include <map>
#include <string>

#include "skein/config/run_config.h"

namespace skein::plan {

struct ModelTexts {
  // By name: the generation settings of the model, or of the adapter that the run goes on with, and
  // the files of the tokenizer that the run reads text with; named chat templates have a folder
  // (text::kTemplateFolder).
  std::map<std::string, std::string> files;
  std::string config_changes = "{}";  // of config.json, see chat_files.h
};

// Besides config.json (or adapter_config.json) and trainer_state.json. Throws UserError or IoError
// for files that are broken.
ModelTexts texts_beside_weights(const config::RunConfig& config);

}  // namespace skein::plan
