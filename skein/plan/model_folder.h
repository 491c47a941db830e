// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which model does a folder mean, and what lies in it? The one way in which all commands open what
// they are given. Names of files are looked at, and a little of the weights.

#include <string>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/core/file.h"

namespace skein::plan {

struct ModelFolder {
  fs::path weights;  // config.json and weights
  fs::path adapter;  // adapter_config.json and its tensors, beside them; empty: none

  // What it is made of, the newest first: an adapter's texts count more than its base's.
  std::vector<fs::path> parts() const;
  // The part that has such a file; where none does, the weights'.
  fs::path folder_of(const char* file) const;
  // The part that has a tokenizer, in whatever form: its files and templates belong together.
  fs::path tokenizer_folder() const;
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
// Does open_model_folder() take it for an adapter, whose base it looks for?
bool names_adapter(const fs::path& folder);
// Weights alone: an adapter does not count.
ModelFolder open_weights(const fs::path& folder);

// Why a folder without config.json is no model, and what to name instead.
std::string no_model_message(const fs::path& folder);
// The adapter_config.json of a folder that a run goes on with. Of a run that is not finished a
// checkpoint must be named: the latest may be another one tomorrow.
adapter::AdapterConfig read_adapter(const fs::path& folder);

}  // namespace skein::plan
