// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/file_lock.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

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

FileLock::FileLock(const fs::path& path, const std::function<void()>& on_wait) : path_(path) {
  for (bool has_waited = false;;) {
    file_ = File::open_or_create(path);
    while (!lock(file_, LOCK_EX | LOCK_NB)) {  // not in one call: a stop must be seen meanwhile
      if (errno != EWOULDBLOCK) throw_errno(fmt::format("cannot lock {}", path.string()));
      if (on_wait && !std::exchange(has_waited, true)) on_wait();
      end_if_stop_waits();
      std::this_thread::sleep_for(kLookEvery);
    }
    // Who had it may have removed it while this one was waiting: then another has the name.
    if (has_name()) return;
  }
}

FileLock::~FileLock() {
  std::error_code ignored;  // left there, it locks all the same
  if (has_name()) fs::remove(path_, ignored);
}

bool FileLock::has_name() const {
  struct stat own{}, named{};
  return ::fstat(file_.descriptor(), &own) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

}  // namespace skein::data
