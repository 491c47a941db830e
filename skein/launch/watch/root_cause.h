// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Several ranks failed: which one is to blame?

#include <chrono>
#include <span>

#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/launch/process/child.h"

namespace skein::launch {

struct Failure {
  int rank = 0;
  ChildEnd end;
  Time time;
};

inline bool is_communication_error(const ChildEnd& end) {
  return end.signal == 0 && end.code == static_cast<int>(ExitCode::kComm);
}

// The earliest that is no communication error, within `window` of the first; else the first: ranks
// that lost a peer exit with 3, often before the peer's own end is seen. `failures` is not empty
// and in order of time.
inline const Failure& root_cause(std::span<const Failure> failures,
                                 std::chrono::milliseconds window) {
  for (const auto& failure : failures) {
    if (failure.time > failures.front().time + window) break;
    if (!is_communication_error(failure.end)) return failure;
  }
  return failures.front();
}

}  // namespace skein::launch
