// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What must a folder say besides its weights, so that the model answers as it was trained to?

#include <map>
#include <string>

#include "skein/config/run_config.h"

namespace skein::plan {

// `files` are the texts that a run saves beside the weights, by name, the tokenizer's as it is
// saved. They get the template that the run trains with (chat_template.jinja, where they do not
// have it), and a generation_config.json.
//
// The ids there and in config.json follow the tokenizer as transformers' Trainer makes them: its
// beginning, end and padding are the model's, and lists of ends keep what they have. Both also get
// the token that ends a turn. Returns the keys of config.json that change, a JSON object. Throws
// UserError for files that are broken.
std::string add_chat_files(const config::ModelConfig& model, const config::RowsConfig& rows,
                           std::map<std::string, std::string>& files);

// config.json with these changes, its keys in their order.
std::string with_changes(const std::string& config, const std::string& changes);

}  // namespace skein::plan
