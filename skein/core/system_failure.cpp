// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/system_failure.h"

#include <cerrno>
#include <chrono>

#include "skein/core/file_system.h"

namespace skein {

bool may_pass(int code) {
  return code == ESTALE || code == EIO || code == ETIMEDOUT || code == EINTR || code == EAGAIN;
}

bool says_absent(int code) {
  return code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENAMETOOLONG;
}

void try_again(const std::function<void()>& attempt) {
  for (const int milliseconds : {100, 300, 1'000, 3'000}) {
    try {
      return attempt();
    } catch (const SystemFailure& failure) {
      if (!may_pass(failure.code)) throw;
    }
    file_system().pause(std::chrono::milliseconds(milliseconds));
  }
  attempt();
}

}  // namespace skein
