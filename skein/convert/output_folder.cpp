// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

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

// Held as long as the folder is written; gone with the process. None where the file system cannot.
File lock_folder(const fs::path& folder) {
  File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (file && ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) return file;
  return {};
}

// NAME.tmp- and 16 hexadecimal digits, as temporary_beside() makes them.
bool is_temporary_of(const fs::path& folder, const std::string& name) {
  const auto start = folder.filename().string() + ".tmp-";
  return name.starts_with(start) && name.size() == start.size() + 16 &&
         name.find_first_not_of("0123456789abcdef", start.size()) == std::string::npos;
}

// What writers that were killed have left, and nobody else: their locks are gone.
void sweep(const fs::path& folder) {
  std::vector<fs::path> left;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.parent_path(), ignored)) {
    if (is_temporary_of(folder, entry.path().filename())) left.push_back(entry.path());
  }
  for (const auto& path : left) {
    const auto lock = lock_folder(path);
    if (!lock || !std::ranges::all_of(fs::directory_iterator(path), is_model_entry)) continue;
    log_info("removing {}, which a killed start has left", path.string());
    try {
      remove_tree(path);
    } catch (const IoError& error) {
      log_warning("{}", error.what());
    }
  }
}

// Ctrl-\ asks for the same as Ctrl-C, and would else end the program at once.
// Returns what it did before; who ignores it goes on to.
QuitHandler stop_on_quit() {
  const auto before = std::signal(SIGQUIT, [](int) { ::kill(::getpid(), SIGINT); });
  if (before == SIG_IGN) std::signal(SIGQUIT, SIG_IGN);
  return before;
}

}  // namespace

void check_output(const OutputOptions& options) {
  const auto folder = output_path(options.folder);
  if (!fs::exists(fs::symlink_status(folder))) return;
  if (!fs::is_directory(folder)) {
    throw UserError(fmt::format("--out '{}' is not a folder", folder.string()));
  }
  if (fs::is_symlink(folder)) {
    throw UserError(
        fmt::format("--out '{}' is a link: name the folder that it leads to", folder.string()));
  }
  refuse_inputs(folder, options.inputs);
  if (fs::is_empty(folder)) return;
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
  sweep(folder);
  check_room(folder.parent_path(), bytes);
  temporary_ = temporary_beside(folder);
  hold_stop_signals();
  quit_handler_ = stop_on_quit();
  make_new_directory(temporary_);
  lock_ = lock_folder(temporary_);
}

OutputFolder::~OutputFolder() {
  try {
    if (!committed_) remove_tree(temporary_);
  } catch (const std::exception& error) {
    log_warning("{}", error.what());
  }
  std::signal(SIGQUIT, quit_handler_);
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
    const auto old = temporary_beside(folder.string() + ".old");  // not swept: the only one
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
