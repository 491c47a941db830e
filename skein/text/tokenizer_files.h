// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files of a model's folder belong to its tokenizer? What is made of the model carries them.

#include <algorithm>
#include <array>

#include "skein/core/file.h"

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

}  // namespace skein::text
