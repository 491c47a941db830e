// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "skein/core/file_system.h"
#include "skein/core/system_failure.h"

namespace skein {
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

// `path` may be of several names.
File open_inside(const fs::path& folder, const fs::path& path) {
  const auto root = resolve(folder.empty() ? fs::path(".") : folder);
  const auto target = resolve(folder / path);
  const bool in_hub_cache = root.parent_path().filename() == "snapshots" &&
                            lies_in(target, root.parent_path().parent_path() / "blobs");
  if (!lies_in(target, root) && !in_hub_cache) {
    throw IoError(fmt::format(
        "{} leads out of its folder, to {}: such a link is not followed; put the file itself there",
        (folder / path).string(), target.string()));
  }
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  File file(file_system().open(target, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) throw_errno("cannot open " + target.string());
  struct stat info{};
  if (::fstat(file.descriptor(), &info) != 0) throw_errno("cannot stat " + target.string());
  if (!S_ISREG(info.st_mode)) throw IoError(target.string() + " is not a regular file");
  return file;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_file_name(std::string_view name) {
  const auto slash = name.find('/');
  return is_plain_name(name.substr(0, slash)) &&
         (slash == std::string_view::npos || is_plain_name(name.substr(slash + 1)));
}

File open_beneath(const fs::path& folder, std::string_view name) {
  if (!is_file_name(name)) {
    throw IoError(fmt::format("{}: '{}' is not a file name", folder.string(), name));
  }
  return open_inside(folder, name);
}

std::string read_beneath(const fs::path& folder, const fs::path& path, uint64_t limit) {
  for (const auto& name : path) {
    if (!is_plain_name(name.string())) {
      throw IoError(fmt::format("{}: '{}' is not a file of it", folder.string(), path.string()));
    }
  }
  const auto file = open_inside(folder, path);
  const uint64_t size = file.size();
  if (size > limit) {
    throw IoError(fmt::format("{} has {} bytes, more than the limit of {}",
                              (folder / path).string(), size, limit));
  }
  std::string text(size, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace skein
