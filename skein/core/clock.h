// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The clock that waits and ages are measured by: it never jumps, and stands still while the run is
// paused (Ctrl-Z).

#include <atomic>
#include <chrono>
#include <cstdint>

namespace skein {

struct Clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;

  static time_point now();

  // Between the two it stands still. For a process that stops itself: whichever of its threads goes
  // on first, none sees a jump.
  static void freeze();
  static void thaw();

  // For a process that another one stops: that one adds the nanoseconds to this number before it
  // lets it go on. The number must live as long as the process does. By default there is none.
  static void count_pauses_in(const std::atomic<int64_t>& nanoseconds);
};

using Time = Clock::time_point;

}  // namespace skein
