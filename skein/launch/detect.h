// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many ranks, on what, and why? A pure function of what was asked for and what is there.
//
// Order: flags, then NPROC_PER_NODE, then all visible GPUs, then one CPU rank. Without LOCAL_RANK,
// WORLD_SIZE counts machines (several clusters and scripts set it so); more than one, and other
// launchers' workers, are refused by this version.

#include <map>
#include <string>

#include "skein/config/run_config.h"
#include "skein/launch/hardware.h"
#include "skein/launch/launch_flags.h"
#include "skein/launch/launch_plan.h"

namespace skein::launch {

using Environment = std::map<std::string, std::string>;

// This process's variables.
Environment read_environment();

struct Situation {
  LaunchFlags flags;
  Environment environment;
  Hardware hardware;
  config::Device device = config::Device::kAuto;
  bool cuda_build = false;  // whether skein-worker was built with CUDA
};

// A GPU that is present but not used is a warning in the plan, never silent. Throws UserError when
// what was asked for cannot be had, with the number found.
LaunchPlan detect(const Situation& situation);

}  // namespace skein::launch
