// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/new_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <utility>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/log.h"

namespace skein::gradient_features {
namespace {

fs::path parent_of(const fs::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// NAME.tmp- and 16 hexadecimal digits, as temporary_beside() makes them.
bool is_temporary_of(const std::string& name, const std::string& other) {
  const auto start = name + ".tmp-";
  return other.starts_with(start) && other.size() == start.size() + 16 &&
         other.find_first_not_of("0123456789abcdef", start.size()) == std::string::npos;
}

// Nobody writes it any more. False where the file system has no locks.
bool is_left_behind(const fs::path& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  return file && ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

NewFile::NewFile(fs::path path)
    : path_(std::move(path)), temporary_(temporary_beside(path_)), file_(File::create(temporary_)) {
  ::flock(file_.descriptor(), LOCK_EX | LOCK_NB);
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) file_system().remove(temporary_);
}

void NewFile::commit() {
  file_.sync();
  rename_path(temporary_, path_);
  temporary_.clear();
  sync_directory(parent_of(path_));
}

void sweep_temporaries_of(const fs::path& path) {
  std::vector<fs::path> left;
  std::error_code error;
  auto entry = fs::directory_iterator(parent_of(path), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_temporary_of(path.filename(), entry->path().filename())) left.push_back(entry->path());
  }
  for (const auto& temporary : left) {
    if (!is_left_behind(temporary)) continue;
    log_info("removing {}, which a killed start has left", temporary.string());
    file_system().remove(temporary);
  }
}

}  // namespace skein::gradient_features
