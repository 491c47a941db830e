// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How long may a run's ranks wait for each other? From the configuration to the watchers' limits.

#include <chrono>

#include "skein/config/load.h"
#include "skein/launch/watch/diagnosis.h"

namespace skein::cli {

// `one_cpu_machine`: nobody waits for a network or for kernels to be loaded, so that a deadline may
// follow what the run itself has shown, unless the user has named one.
inline launch::Limits limits_of(const config::Resolved& resolved, bool one_cpu_machine) {
  const auto& parallel = resolved.config.parallel;
  const std::chrono::seconds collective(parallel.ddp_timeout);
  return {.collective = collective,
          .first_step = 3 * collective,
          .join = std::chrono::seconds(parallel.join_timeout),
          .heartbeat = std::chrono::seconds(parallel.heartbeat_timeout),
          .adaptive = one_cpu_machine && !resolved.origins.contains("ddp_timeout")};
}

}  // namespace skein::cli
