// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "skein/core/file_system.h"
#include "skein/core/system_failure.h"

namespace skein::checkpoint {
namespace {

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

fs::path resolve(const fs::path& path) {
  std::error_code error;
  auto resolved = fs::canonical(path, error);
  if (error) {
    throw SystemFailure(fmt::format("cannot open {}: {}", path.string(), error.message()),
                        error.value());
  }
  return resolved;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

File open_beneath(const fs::path& folder, std::string_view name) {
  if (!is_plain_name(name)) {
    throw IoError(fmt::format("{}: '{}' is not a plain file name", folder.string(), name));
  }
  const auto root = resolve(folder);
  const auto path = resolve(folder / name);
  const bool in_hub_cache = root.parent_path().filename() == "snapshots" &&
                            lies_in(path, root.parent_path().parent_path() / "blobs");
  if (!lies_in(path, root) && !in_hub_cache) {
    throw IoError(
        fmt::format("{} leads out of its folder, to {}", (folder / name).string(), path.string()));
  }
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  File file(file_system().open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) throw_errno("cannot open " + path.string());
  struct stat info{};
  if (::fstat(file.descriptor(), &info) != 0) throw_errno("cannot stat " + path.string());
  if (!S_ISREG(info.st_mode)) throw IoError(path.string() + " is not a regular file");
  return file;
}

}  // namespace skein::checkpoint
