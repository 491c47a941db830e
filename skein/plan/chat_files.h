// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What must a folder say besides its weights, so that the model answers as it was trained to?

#include <map>
#include <optional>
#include <string>

#include "skein/config/run_config.h"
#include "skein/text/chat_template.h"

namespace skein::plan {

using TextFiles = std::map<std::string, std::string>;  // texts by the names of their files

// What of a model follows its tokenizer and its template.
struct AlignedIds {
  std::string config_changes = "{}";  // the keys of config.json that change, a JSON object
  std::string generation;             // generation_config.json
};

// `config` is config.json, `files` the tokenizer's and perhaps generation_config.json.
//
// As transformers' Trainer makes them: the tokenizer's beginning, end and padding are the model's,
// and lists of ends keep what they have. Both also get the token that ends a turn. Throws UserError
// for files that are broken.
AlignedIds align_ids(const std::string& config, const TextFiles& files,
                     const std::optional<text::ChatTemplate>& chat);

// `files` are the texts that a run saves beside the weights, by name, the tokenizer's as it is
// saved. They get the template that the run trains with (chat_template.jinja, where they do not
// have it), and a generation_config.json with ids as align_ids() makes them. Returns the keys of
// config.json that change, a JSON object.
std::string add_chat_files(const config::ModelConfig& model, const config::RowsConfig& rows,
                           TextFiles& files);

// config.json with these changes, its keys in their order.
std::string with_changes(const std::string& config, const std::string& changes);

}  // namespace skein::plan
