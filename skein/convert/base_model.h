// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What merging and exporting must know of a model besides its tensors. Names only: any family.

#include <optional>
#include <string>

#include "skein/checkpoint/files/model_files.h"
#include "skein/core/file.h"

namespace skein::convert {

struct BaseModel {
  fs::path folder;
  checkpoint::ModelFiles files;
  std::string config;  // the text of config.json
  std::string model_type;
  bool tied_head = false;  // the head is the embedding
  // Files may hold more layers (for multi-token prediction), which nobody builds.
  std::optional<int64_t> num_layers;

  // The tensor of the input embedding; empty where no name is known for it.
  std::string embedding_name() const;
  // Are weights of its linear layers stored (in, out)?
  bool has_transposed_layers() const;
};

inline constexpr const char* kHeadName = "lm_head.weight";

// Of a folder that plan/model_folder.h has found. Throws UserError for a quantised model.
BaseModel open_base_model(const fs::path& folder);

// What changes in config.json.
struct ConfigChanges {
  std::optional<DType> dtype;
  bool untie_head = false;
  std::optional<uint64_t> vocab_size;
  bool scores = false;  // a head that scores in place of the one that gives logits
};

// Keys that are not known and their order stay.
std::string changed_config(const BaseModel& base, const ConfigChanges& changes);

}  // namespace skein::convert
