// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The clock that waits and ages are measured by: it never jumps.

#include <chrono>

namespace skein {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

}  // namespace skein
