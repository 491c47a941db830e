// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "skein/checkpoint/files/model_files.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/plan/adapter_base.h"
#include "skein/plan/hub_name.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

bool is_adapter(const fs::path& folder) { return fs::exists(folder / adapter::kConfigName); }

bool has_weights(const fs::path& folder) {
  const auto single = std::string(checkpoint::kModelStem) + ".safetensors";
  return fs::exists(folder / single) || fs::exists(folder / (single + ".index.json"));
}

// Of a run that is not finished; empty: it is, or the folder is none of a run.
fs::path latest_checkpoint(const fs::path& folder) {
  const auto latest = folder / "latest";
  if (has_weights(folder) || is_adapter(folder)) return {};
  if (!fs::exists(latest / "config.json") && !is_adapter(latest)) return {};
  return folder / fs::canonical(latest).filename();
}

std::string unfinished_message(const fs::path& folder, const fs::path& checkpoint) {
  return fmt::format("'{}' holds a run that is not finished: name its latest checkpoint, {}",
                     folder.string(), checkpoint.string());
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
  throw UserError(fmt::format("'{}' {}", folder.string(), why));
}

// Those of a run beside one that is not there, by their numbers: "checkpoint-5, checkpoint-10".
std::string checkpoints_beside(const fs::path& folder) {
  constexpr std::string_view kBegin = "checkpoint-";
  if (!folder.filename().string().starts_with(kBegin) || fs::exists(folder)) return "";
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.parent_path(), ignored)) {
    auto name = entry.path().filename().string();
    if (name.starts_with(kBegin)) names.push_back(shown(name));
  }
  std::ranges::sort(names, [](const auto& one, const auto& other) {
    return std::pair(one.size(), one) < std::pair(other.size(), other);
  });
  return fmt::format("{}", fmt::join(names, ", "));
}

constexpr const char* kModelFiles = "config.json and weights";
constexpr const char* kAdapterFiles = "adapter_config.json and adapter_model.safetensors";

// Empty: it is a folder.
std::string no_folder_message(const fs::path& folder, const char* files) {
  if (fs::is_directory(folder)) return "";
  const auto siblings = checkpoints_beside(folder);
  if (!siblings.empty()) {
    return fmt::format("'{}' does not exist: {} has {}", folder.string(),
                       folder.parent_path().string(), siblings);
  }
  return fmt::format("'{}' {}: name a folder with {}{}", folder.string(),
                     fs::exists(folder) ? "is not a folder" : "does not exist", files,
                     download_advice(folder));
}

void check_folder(const fs::path& folder, const char* files) {
  if (const auto why = no_folder_message(folder, files); !why.empty()) throw UserError(why);
}

void check_weights(const fs::path& folder) {
  check_folder(folder, kModelFiles);
  if (!has_weights(folder)) {
    throw UserError(is_adapter(folder) ? no_model_message(folder)
                                       : checkpoint::no_weights_message(folder));
  }
  if (!fs::exists(folder / "config.json")) throw UserError(no_model_message(folder));
}

// The folder, or of a run that is not finished its latest checkpoint.
fs::path newest_of(const fs::path& folder, const char* files = kModelFiles) {
  check_folder(folder, files);
  auto checkpoint = latest_checkpoint(folder);
  if (checkpoint.empty()) return folder;
  log_info("{} holds a run that is not finished: taking {}", folder.string(), checkpoint.string());
  return checkpoint;
}

// `given`: --base; may be empty.
ModelFolder beside_base(const fs::path& adapter, const fs::path& given) {
  const auto named = adapter::read_adapter_config(adapter).base_model;
  const auto base = given.empty() ? fs::path(named) : given;
  if (base.empty()) refuse(adapter, "is an adapter that names no base: give --base DIR");
  if (given.empty() && !fs::is_directory(base)) {
    refuse(adapter, fmt::format("is an adapter of '{}', which is no folder here: give --base DIR{}",
                                shown(base.string()), download_advice(base)));
  }
  check_weights(base);
  check_adapter_base(adapter,
                     {.folder = base,
                      .said_by = given.empty() ? "base_model_name_or_path" : "--base",
                      .cure = given.empty() ? "Give its base: --base DIR" : "Give its base"});
  return {.weights = base, .adapter = adapter};
}

// What to type where an adapter was given as the model.
std::string adapter_advice(const fs::path& folder) {
  std::string base;
  try {
    base = adapter::read_adapter_config(folder).base_model;
  } catch (const UserError&) {  // of another kind
  }
  return fmt::format(
      "{0} is an adapter, not a model: to train it further give model_name_or_path={1}, "
      "finetuning_type=lora and adapter_name_or_path={0}; `skein merge {0} --out DIR` "
      "makes a model of it",
      folder.string(), base.empty() ? "BASE" : shown(base));
}

}  // namespace

std::vector<fs::path> ModelFolder::parts() const {
  if (adapter.empty()) return {weights};
  return {adapter, weights};
}

fs::path ModelFolder::folder_of(const char* file) const {
  return !adapter.empty() && fs::exists(adapter / file) ? adapter : weights;
}

fs::path ModelFolder::tokenizer_folder() const {
  return !adapter.empty() && text::has_tokenizer(adapter) ? adapter : weights;
}

ModelFolder open_model_folder(const ModelWords& words) {
  const auto folder = newest_of(words.folder);
  if (!words.adapter.empty()) {
    if (!words.base.empty()) throw UserError("--base is for an adapter as MODEL: leave it out");
    check_weights(folder);
    const auto adapter = newest_of(words.adapter, kAdapterFiles);
    check_adapter_base(adapter, {.folder = folder,
                                 .said_by = "the model",
                                 .cure = "Give its base as the model, or another --adapter"});
    return {.weights = folder, .adapter = adapter};
  }
  if (is_adapter(folder) && !has_weights(folder)) return beside_base(folder, words.base);
  if (!words.base.empty()) refuse(folder, "is no adapter: --base has nothing to say");
  check_weights(folder);
  return {.weights = folder, .adapter = {}};
}

bool names_adapter(const fs::path& folder) {
  const auto latest = latest_checkpoint(folder);
  const auto& newest = latest.empty() ? folder : latest;
  return is_adapter(newest) && !has_weights(newest);
}

ModelFolder open_adapter(const fs::path& folder, const fs::path& base) {
  const auto newest = newest_of(folder, kAdapterFiles);
  if (!is_adapter(newest) && has_weights(newest)) {
    refuse(folder, fmt::format("is no adapter but a model: name the folder with "
                               "adapter_config.json, and this one, if it is the base, as --base {}",
                               folder.string()));
  }
  return beside_base(newest, base);
}

ModelFolder open_weights(const fs::path& given) {
  auto folder = newest_of(given);
  check_weights(folder);
  return {.weights = std::move(folder), .adapter = {}};
}

std::string no_model_message(const fs::path& folder) {
  if (auto why = no_folder_message(folder, kModelFiles); !why.empty()) return why;
  if (is_adapter(folder)) return adapter_advice(folder);
  if (const auto latest = latest_checkpoint(folder); !latest.empty()) {
    return unfinished_message(folder, latest);
  }
  return fmt::format("'{}' has no config.json: name a Hugging Face model folder", folder.string());
}

adapter::AdapterConfig read_adapter(const fs::path& folder) {
  const auto latest = latest_checkpoint(folder);
  if (!latest.empty()) throw UserError(unfinished_message(folder, latest));
  return adapter::read_adapter_config(folder);
}

}  // namespace skein::plan
