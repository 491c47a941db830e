// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/clock.h"

namespace skein {
namespace {

constexpr int64_t kRuns = -1;

std::atomic<int64_t> frozen_at = kRuns;  // what the clock shows while it stands still
std::atomic<int64_t> frozen_for = 0;     // nanoseconds, all times together
std::atomic<int64_t> no_pauses = 0;
std::atomic<const std::atomic<int64_t>*> pauses = &no_pauses;

int64_t running_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(since).count() - *pauses.load();
}

}  // namespace

Clock::time_point Clock::now() {
  const int64_t running =
      running_ns();  // first: if it is old when the rest is read, no harm is done
  const int64_t frozen = frozen_at;
  return time_point(duration(frozen != kRuns ? frozen : running - frozen_for));
}

void Clock::freeze() { frozen_at = now().time_since_epoch().count(); }

void Clock::thaw() {
  frozen_for = running_ns() - frozen_at;
  frozen_at = kRuns;
}

void Clock::count_pauses_in(const std::atomic<int64_t>& nanoseconds) { pauses = &nanoseconds; }

}  // namespace skein
