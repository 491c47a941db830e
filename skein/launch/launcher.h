// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Starts the ranks of this machine, watches them, and ends with one exit code.
//
// - The first rank that fails ends the others: SIGTERM, then SIGKILL after `grace`.
// - The code is the root cause's: the earliest failure that is no communication error (3), seen
//   within `root_cause_window` of the first; else the earliest. A rank killed by a signal gives 1.
// - SIGTERM, SIGUSR1 and the first SIGINT reach each rank once, as SIGTERM: it finishes the step,
//   saves and exits with 75. A second SIGINT kills all ranks and gives 130.
// - However the launcher ends, no rank outlives it.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "skein/launch/launch_plan.h"

namespace skein::launch {

struct LaunchOptions {
  std::chrono::milliseconds grace{5000};
  std::chrono::milliseconds root_cause_window{1000};
  uint64_t generation = 0;
};

// Runs `arguments` (the program's path first) once per rank. Call on the main thread, before any
// other thread exists: signals are blocked for the time of the call. One line on stderr says which
// rank failed first. Throws UserError when the program is missing.
int launch(const LaunchPlan& plan, const std::vector<std::string>& arguments,
           const LaunchOptions& options = {});

}  // namespace skein::launch
