// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// New special tokens in the files of a tokenizer, as transformers' add_tokens(…,
// special_tokens=True) leaves them: a token that the tokenizer knows keeps its id, the others get
// the ids behind all there are, in their order.
//
// The files keep their bytes but for the entries that are added: of a large file nothing is
// written anew.

#include <string>
#include <string_view>
#include <vector>

#include "skein/text/added_tokens.h"

namespace skein::text {

// What must be added to a tokenizer.json so that all of `contents` are tokens of their own.
// `name` begins messages. Throws UserError for what is no token (empty, not UTF-8, twice).
std::vector<AddedToken> new_special_tokens(std::string_view tokenizer_json,
                                           const std::vector<std::string>& contents,
                                           const std::string& name);

// The text of the file with these tokens in it.
std::string with_tokens(std::string_view tokenizer_json, const std::vector<AddedToken>& tokens);
// tokenizer_config.json: transformers 4 repeats all added tokens there. A file that does not list
// them stays.
std::string config_with_tokens(std::string_view tokenizer_config,
                               const std::vector<AddedToken>& tokens);

}  // namespace skein::text
