// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which model does a folder mean? The one way in which generate, chat, eval, merge and export open
// what they are given.

#include "skein/core/file.h"

namespace skein::cli {

struct ModelFolder {
  fs::path weights;  // config.json and weights
  fs::path adapter;  // adapter_config.json and its tensors, beside them; empty: none

  // Where a text file of the model (tokenizer.json, generation_config.json, …) is: an adapter's is
  // newer than its base's.
  fs::path folder_of(const char* file) const;
};

struct ModelWords {
  fs::path folder;   // MODEL
  fs::path adapter;  // --adapter; may be empty
  fs::path base;     // --base; may be empty
};

// MODEL is a folder with config.json and weights, or an adapter as PEFT writes it, whose base is
// --base or what it names. Of a run that is not finished, the latest checkpoint. Throws UserError,
// also for an adapter of another base.
ModelFolder open_model_folder(const ModelWords& words);
// An adapter and its base, whatever else lies in its folder. `base` may be empty.
ModelFolder open_adapter(const fs::path& folder, const fs::path& base);

// The same where an adapter does not count.
fs::path check_model_folder(const fs::path& folder);
// The folder, or of a run that is not finished its latest checkpoint.
fs::path newest_of(const fs::path& folder);

}  // namespace skein::cli
