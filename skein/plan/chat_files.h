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
// have it), and a generation_config.json whose eos_token_id holds the token that ends a turn and
// the one that ends a text, beside those that were there. Throws UserError for files that are
// broken.
void add_chat_files(const config::ModelConfig& model, const config::RowsConfig& rows,
                    std::map<std::string, std::string>& files);

}  // namespace skein::plan
