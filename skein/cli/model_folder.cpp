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
#include "skein/plan/adapter_base.h"
#include "skein/plan/hub_name.h"

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
    refuse(folder, "does not exist: name a folder with config.json and weights" +
                       plan::download_advice(folder));
  }
  if (!fs::is_directory(folder)) {
    refuse(folder, "is not a folder: name the one that holds config.json");
  }
}

void check_weights(const fs::path& folder) {
  check_folder(folder);
  if (!has_weights(folder)) {
    if (is_adapter(folder)) {
      refuse(folder, "is an adapter: `skein merge` makes a model of it and its base");
    }
    throw UserError(checkpoint::no_weights_message(folder));
  }
  if (!fs::exists(folder / "config.json")) refuse(folder, "has no config.json");
}

// `given`: --base; may be empty.
ModelFolder beside_base(const fs::path& adapter, const fs::path& given) {
  const auto named = adapter::read_adapter_config(adapter).base_model;
  const auto base = given.empty() ? fs::path(named) : given;
  if (base.empty()) refuse(adapter, "is an adapter that names no base: give --base DIR");
  if (given.empty() && !fs::is_directory(base)) {
    refuse(adapter, fmt::format("is an adapter of '{}', which is no folder here: give --base DIR{}",
                                shown(base.string()), plan::download_advice(base)));
  }
  check_weights(base);
  plan::check_adapter_base(adapter,
                           {.folder = base,
                            .said_by = given.empty() ? "base_model_name_or_path" : "--base",
                            .cure = given.empty() ? "Give its base: --base DIR" : "Give its base"});
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
    const auto adapter = newest_of(words.adapter);
    plan::check_adapter_base(adapter, {.folder = folder,
                                       .said_by = "the model",
                                       .cure = "Give its base as the model, or another --adapter"});
    return {folder, adapter};
  }
  if (is_adapter(folder) && !has_weights(folder)) return beside_base(folder, words.base);
  if (!words.base.empty()) refuse(folder, "is no adapter: --base has nothing to say");
  check_weights(folder);
  return {folder, {}};
}

ModelFolder open_adapter(const fs::path& folder, const fs::path& base) {
  return beside_base(newest_of(folder), base);
}

fs::path check_model_folder(const fs::path& given) {
  auto folder = newest_of(given);
  check_weights(folder);
  return folder;
}

}  // namespace skein::cli
