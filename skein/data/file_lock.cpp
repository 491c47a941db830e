// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/file_lock.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/stop_signals.h"

namespace skein::data {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

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
  if (errno == EWOULDBLOCK && on_wait) on_wait();
  while (errno == EWOULDBLOCK) {  // not in one call: a stop must be seen meanwhile
    end_if_stop_waits();
    std::this_thread::sleep_for(kLookEvery);
    if (lock(file_, LOCK_EX | LOCK_NB)) return;
  }
  throw_errno(fmt::format("cannot lock {}", path.string()));
}

}  // namespace skein::data
