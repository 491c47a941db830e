// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The files of a model besides its tensors and config.json: tokenizer, template, generation.

#include <string>
#include <string_view>

#include "skein/core/file.h"
#include "skein/plan/model_folder.h"

namespace skein::convert {

inline constexpr const char* kGenerationName = "generation_config.json";

// Copies what is there, of an adapter and its base the newer: the tokenizer as a whole, and
// generation_config.json, for which `generation` stands if it is not empty. Strangers' links that
// lead out of a folder are refused.
void copy_model_texts(const plan::ModelFolder& model, const std::string& generation,
                      const fs::path& out);

// Is the entry of a model's folder one that exporting or merging writes: the files above, tensors,
// config.json?
bool is_model_entry(const fs::directory_entry& entry);

// New, synced.
void write_text(const fs::path& path, std::string_view text);

}  // namespace skein::convert
