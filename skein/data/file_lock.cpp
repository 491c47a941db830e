// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/file_lock.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

#include "skein/core/error.h"

namespace skein::data {
namespace {

bool lock(const File& file, int flags) {
  int status = 0;
  do {
    status = ::flock(file.descriptor(), flags);
  } while (status != 0 && errno == EINTR);
  return status == 0;
}

}  // namespace

FileLock::FileLock(const fs::path& path, const std::function<void()>& on_wait)
    : file_(File::open_or_create(path)) {
  if (lock(file_, LOCK_EX | LOCK_NB)) return;
  if (errno == EWOULDBLOCK) {
    if (on_wait) on_wait();
    if (lock(file_, LOCK_EX)) return;
  }
  throw_errno(fmt::format("cannot lock {}", path.string()));
}

}  // namespace skein::data
