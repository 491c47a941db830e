// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files of a folder belong to a tokenizer? What is made of a model carries them.

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {

inline constexpr std::array<const char*, 15> kTokenizerFiles = {"tokenizer.json",
                                                                "tokenizer_config.json",
                                                                "special_tokens_map.json",
                                                                "added_tokens.json",
                                                                "vocab.json",
                                                                "merges.txt",
                                                                "vocab.txt",
                                                                "tokenizer.model",
                                                                "spiece.model",
                                                                "sentencepiece.bpe.model",
                                                                "chat_template.jinja",
                                                                "chat_template.json",
                                                                "preprocessor_config.json",
                                                                "processor_config.json",
                                                                "video_preprocessor_config.json"};

// The ones that are a tokenizer by themselves; skein reads the first.
inline constexpr std::array<const char*, 3> kTokenizerForms = {"tokenizer.json", "tokenizer.model",
                                                               "vocab.json"};

// In any form, be it a link that leads nowhere.
inline bool has_tokenizer(const fs::path& folder) {
  return std::ranges::any_of(kTokenizerForms, [&](const char* name) {
    return fs::exists(fs::symlink_status(folder / name));
  });
}

// Named chat templates lie in it, NAME.jinja each, where transformers saves and finds them.
inline constexpr const char* kTemplateFolder = "additional_chat_templates";

// Of these, what name special tokens; the first that names one counts.
inline constexpr std::array<const char*, 2> kNamingFiles = {"tokenizer_config.json",
                                                            "special_tokens_map.json"};

// What of all this lies in the folder: names, or kTemplateFolder/NAME.jinja. Sorted. Throws
// UserError for a template whose name is not UTF-8.
std::vector<std::string> tokenizer_files_in(const fs::path& folder);

// What kNamingFiles say, each read by its name where it is there. `folder` is for messages.
TokenizerNames tokenizer_names(
    const fs::path& folder,
    const std::function<std::optional<std::string>(const char* name)>& text_of);

// Where a tokenizer lies.
struct TokenizerPlace {
  fs::path file;    // its tokenizer.json, perhaps of another name
  fs::path folder;  // the other files of which are its own; empty: none are
};

// `path` is a folder or such a file. What lies beside a file is its own, unless that lies beside
// another tokenizer.json.
TokenizerPlace tokenizer_place(const fs::path& path);

}  // namespace skein::text
