// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does a run save, and may it?

#include <filesystem>

#include "skein/config/load.h"

namespace skein::config {

// output_dir, or outputs/<experiment_name>; empty when neither is given.
inline std::filesystem::path output_folder(const CheckpointConfig& checkpoint) {
  if (!checkpoint.output_dir.empty()) return checkpoint.output_dir;
  if (checkpoint.experiment_name.empty()) return {};
  return std::filesystem::path("outputs") / checkpoint.experiment_name;
}

// Throws UserError when training would replace or remove the model that it begins with, or read
// what it writes.
void check_output_folder(const Resolved& resolved);

// Throws UserError when a folder that a run makes below `output` is a link of another user than
// `self`: what is written there would land where they like. A link of one's own is followed.
void check_subfolders(const std::filesystem::path& output, unsigned self);

}  // namespace skein::config
