// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/model_folder.h"

#include <fmt/format.h>

#include <string>

#include "skein/checkpoint/files/model_files.h"
#include "skein/core/error.h"

namespace skein::cli {

fs::path check_model_folder(const fs::path& folder) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("'{}' {}", folder.string(), why));
  };
  if (!fs::exists(folder)) refuse("does not exist: name a folder with config.json and weights");
  if (!fs::is_directory(folder)) refuse("is not a folder: name the one that holds config.json");
  const bool has_weights = fs::exists(folder / "model.safetensors") ||
                           fs::exists(folder / "model.safetensors.index.json");
  if (has_weights && fs::exists(folder / "config.json")) return folder;
  if (fs::exists(folder / "latest" / "config.json")) {
    refuse(fmt::format("holds a run that is not finished; its latest checkpoint is {}",
                       (folder / "latest").string()));
  }
  if (has_weights) refuse("has no config.json");
  if (fs::exists(folder / "adapter_config.json")) {
    refuse("is an adapter: `skein merge` makes a model of it and its base");
  }
  throw UserError(checkpoint::no_weights_message(folder));
}

}  // namespace skein::cli
