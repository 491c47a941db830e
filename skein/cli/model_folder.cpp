// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/model_folder.h"

#include <fmt/format.h>

#include <string>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"

namespace skein::cli {
namespace {

bool is_adapter(const fs::path& folder) { return fs::exists(folder / adapter::kConfigName); }

bool has_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") ||
         fs::exists(folder / "model.safetensors.index.json");
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
  throw UserError(fmt::format("'{}' {}", folder.string(), why));
}

void check_folder(const fs::path& folder) {
  if (!fs::exists(folder)) {
    refuse(folder, "does not exist: name a folder with config.json and weights");
  }
  if (!fs::is_directory(folder)) {
    refuse(folder, "is not a folder: name the one that holds config.json");
  }
}

void check_weights(const fs::path& folder) {
  check_folder(folder);
  if (!has_weights(folder)) throw UserError(checkpoint::no_weights_message(folder));
  if (!fs::exists(folder / "config.json")) refuse(folder, "has no config.json");
}

ModelFolder beside_base(const fs::path& adapter, fs::path base) {
  if (base.empty()) base = adapter::read_adapter_config(adapter).base_model;
  if (base.empty() || !fs::is_directory(base)) {
    refuse(adapter, fmt::format("is an adapter of '{}', which is no folder here: give --base DIR",
                                shown(base.string())));
  }
  check_weights(base);
  return {base, adapter};
}

}  // namespace

fs::path ModelFolder::folder_of(const char* file) const {
  return !adapter.empty() && fs::exists(adapter / file) ? adapter : weights;
}

fs::path newest_of(const fs::path& folder) {
  check_folder(folder);
  const auto latest = folder / "latest";
  const bool is_finished = has_weights(folder) || is_adapter(folder);
  if (is_finished || !(fs::exists(latest / "config.json") || is_adapter(latest))) return folder;
  auto checkpoint = folder / fs::canonical(latest).filename();
  log_info("{} holds a run that is not finished: taking {}", folder.string(), checkpoint.string());
  return checkpoint;
}

ModelFolder open_model_folder(const ModelWords& words) {
  const auto folder = newest_of(words.folder);
  if (!words.adapter.empty()) {
    if (!words.base.empty()) throw UserError("--base is for an adapter as MODEL: leave it out");
    check_weights(folder);
    return {folder, newest_of(words.adapter)};
  }
  if (is_adapter(folder) && !has_weights(folder)) return beside_base(folder, words.base);
  if (!words.base.empty()) refuse(folder, "is no adapter: --base has nothing to say");
  check_weights(folder);
  return {folder, {}};
}

fs::path check_model_folder(const fs::path& given) {
  auto folder = newest_of(given);
  if (!has_weights(folder) && is_adapter(folder)) {
    refuse(folder, "is an adapter: `skein merge` makes a model of it and its base");
  }
  check_weights(folder);
  return folder;
}

}  // namespace skein::cli
