// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many ranks, on which nodes, on what, and why? A function of what was asked for and what is
// there; it reads the hostfile, if one is named, and nothing else.
//
// Order: flags (typed, or PET_<NAME>), another launcher's LOCAL_RANK, MPI's variables, srun's, the
// variables of nodes (MASTER_ADDR MASTER_PORT NODE_RANK WORLD_SIZE NNODES NPROC_PER_NODE), a
// hostfile, all visible GPUs, one CPU rank. Without LOCAL_RANK, WORLD_SIZE counts nodes: several
// clusters and scripts set it so. What contradicts itself is refused, with both names.

#include <unistd.h>

#include "skein/config/run_config.h"
#include "skein/launch/placement/hardware.h"
#include "skein/launch/placement/launch_flags.h"
#include "skein/launch/placement/launch_plan.h"
#include "skein/launch/placement/variables.h"

namespace skein::launch {

struct Situation {
  LaunchFlags flags;
  Environment environment;
  Hardware hardware;
  config::Device device = config::Device::kAuto;
  bool cuda_build = false;  // whether skein-worker was built with CUDA
  int parent = ::getppid();
};

// A GPU that is present but not used is a warning in the plan, never silent. Throws UserError when
// what was asked for cannot be had, with the number found.
LaunchPlan detect(const Situation& situation);

}  // namespace skein::launch
