// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/output_folder.h"

#include <fmt/format.h>

#include "skein/convert/model_text.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/stop_signals.h"

namespace skein::convert {
namespace {

fs::path output_path(const fs::path& folder) {
  if (folder.empty()) throw UserError("--out DIR is missing: where shall the model go?");
  const auto path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // "out/"
}

void refuse_inputs(const fs::path& folder, const std::vector<fs::path>& inputs) {
  for (const auto& input : inputs) {
    if (!fs::equivalent(folder, input)) continue;
    throw UserError(
        fmt::format("--out '{}' is what is read: name another folder", folder.string()));
  }
}

// What we would not have written is somebody's, and stays.
void refuse_strangers(const fs::path& folder) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("--overwrite: '{}' {}; name another folder, or remove it yourself",
                                folder.string(), why));
  };
  if (fs::is_symlink(folder)) refuse("is a link");
  if (!fs::exists(folder / "config.json")) refuse("is no model: it has no config.json");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_model_entry(entry)) continue;
    refuse(fmt::format("holds more than a model ({})", entry.path().filename().string()));
  }
}

void check_room(const fs::path& parent, uint64_t bytes) {
  std::error_code error;
  const auto space = fs::space(parent, error);
  if (error || space.available >= bytes) return;
  throw DiskFull(fmt::format(
      "the disk is too small for the model: {} are needed, {} are free in {}; free some there, or "
      "give another --out",
      shown_bytes(bytes), shown_bytes(space.available), parent.string()));
}

}  // namespace

void check_output(const OutputOptions& options) {
  const auto folder = output_path(options.folder);
  if (!fs::exists(fs::symlink_status(folder))) return;
  if (!fs::is_directory(folder)) {
    throw UserError(fmt::format("--out '{}' is not a folder", folder.string()));
  }
  refuse_inputs(folder, options.inputs);
  if (fs::is_empty(folder) && !fs::is_symlink(folder)) return;
  if (!options.overwrite) {
    throw UserError(fmt::format(
        "--out '{}' exists and is not empty; name a new folder, or give --overwrite to replace "
        "the model there",
        folder.string()));
  }
  refuse_strangers(folder);
}

OutputFolder::OutputFolder(OutputOptions options, uint64_t bytes) : options_(std::move(options)) {
  auto& folder = options_.folder;
  folder = output_path(folder);
  check_output(options_);
  make_directories(folder.parent_path());
  check_room(folder.parent_path(), bytes);
  temporary_ = temporary_beside(folder);
  hold_stop_signals();
  make_new_directory(temporary_);
}

OutputFolder::~OutputFolder() {
  try {
    if (!committed_) remove_tree(temporary_);
  } catch (const std::exception& error) {
    log_warning("{}", error.what());
  }
  release_stop_signals();
}

void OutputFolder::commit() {
  const auto& folder = options_.folder;
  sync_directory(temporary_);
  check_output(options_);  // somebody may have come first
  const bool replaces = fs::exists(folder) && !fs::is_empty(folder);
  if (replaces && exchange_paths(temporary_, folder)) {
    sync_directory(folder.parent_path());
    committed_ = true;
    remove_tree(temporary_);
    return;
  }
  if (replaces) {
    const auto old = temporary_beside(folder);
    rename_path(folder, old);
    rename_path(temporary_, folder);
    committed_ = true;
    sync_directory(folder.parent_path());
    remove_tree(old);
    return;
  }
  rename_path(temporary_, folder);
  committed_ = true;
  sync_directory(folder.parent_path());
}

}  // namespace skein::convert
