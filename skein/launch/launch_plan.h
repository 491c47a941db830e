// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which ranks does a run have?

#include <string>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::launch {

struct LaunchPlan {
  int local_ranks = 1;
  config::Device device = config::Device::kCpu;  // kCuda: rank i takes visible GPU i; never kAuto
  std::string omp_num_threads = "1";  // of each rank: what the user has set, else cores / ranks
  std::string summary;                // "2 CPU ranks on this machine (--nproc-per-node)"
  std::vector<std::string> warnings;
};

}  // namespace skein::launch
