// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/output_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "skein/core/error.h"

namespace skein::config {

namespace fs = std::filesystem;

namespace {

void check_link(const fs::path& path, unsigned self) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode) || info.st_uid == self) return;
  throw UserError(fmt::format(
      "output_dir: {} is a link that another user has made, and nothing is written through such "
      "a one: remove it, or give another output_dir",
      path.string()));
}

}  // namespace

void check_output_folder(const Resolved& resolved) {
  const auto& config = resolved.config;
  const auto output = output_folder(config.checkpoint);
  const fs::path model = config.model.model_name_or_path;
  std::error_code absent;
  if (fs::equivalent(output, model, absent)) {
    refuse(resolved.origin_of("output_dir"),
           fmt::format("output_dir and model_name_or_path are the same folder, {}: the trained "
                       "model would replace the one that training begins with; give another "
                       "output_dir",
                       output.string()));
  }
  const auto& data = config.data;
  for (const auto& [key, folder] :
       {std::pair("train_file_dir", data.train_file_dir), std::pair("train_file", data.train_file),
        std::pair("validation_file_dir", data.validation_file_dir),
        std::pair("eval_file", data.eval_file)}) {
    if (!fs::is_directory(folder, absent) || !fs::equivalent(output, folder, absent)) continue;
    refuse(resolved.origin_of("output_dir"),
           fmt::format("output_dir and {} are the same folder, {}: what the run writes would be "
                       "read as data; give another output_dir (one below it is fine)",
                       key, output.string()));
  }
  const bool is_checkpoint = model.filename().string().starts_with("checkpoint-");
  const auto parent = fs::absolute(model).parent_path();
  if (config.checkpoint.fresh && is_checkpoint && fs::equivalent(output, parent, absent)) {
    refuse(resolved.origin_of("model_name_or_path"),
           fmt::format("--fresh removes the run in {}, and with it model_name_or_path, {}; give "
                       "another output_dir, or leave --fresh out",
                       output.string(), model.string()));
  }
}

void check_subfolders(const fs::path& output, unsigned self) {
  for (const char* name : {"logs", "runs", "wandb"}) {
    check_link(output / name, self);
  }
  // Folders of restarts and ranks: logs/attempt_0/1. In the place of a file a link is refused by
  // who opens it.
  std::error_code ignored;
  for (auto entry = fs::recursive_directory_iterator(output / "logs", ignored);
       entry != fs::end(entry); entry.increment(ignored)) {
    if (entry.depth() == 1) entry.disable_recursion_pending();
    if (!entry->is_regular_file(ignored)) check_link(entry->path(), self);
  }
}

}  // namespace skein::config
