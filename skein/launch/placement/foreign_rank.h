// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Has another launcher started this process as one of its ranks?

#include <optional>
#include <string>

#include "skein/launch/placement/launch_flags.h"
#include "skein/launch/placement/launch_plan.h"
#include "skein/launch/placement/variables.h"

namespace skein::launch {

struct FoundRank {
  ForeignRank rank;
  std::string variables;  // that say so: "LOCAL_RANK RANK WORLD_SIZE"
  bool own_gpu = false;   // the launcher shows each rank one GPU, its own
};

// LOCAL_RANK with RANK and WORLD_SIZE: torchrun, deepspeed, accelerate. Throws UserError when they
// contradict each other or one is missing.
std::optional<FoundRank> find_worker(const Environment& environment);

// One of several tasks of mpirun or srun. A step of one task is a plain start: an interactive
// shell of Slurm has these variables too.
std::optional<FoundRank> find_task(const Environment& environment);

// Where the ranks meet: flags, MASTER_ADDR and MASTER_PORT, what srun tells, and on one machine
// 127.0.0.1 with a port that all ranks of the job derive alike (`parent`: their parent's id, for
// want of a better name of the job). Throws UserError when several machines have no address.
void fill_address(FoundRank& found, const LaunchFlags& flags, const Environment& environment,
                  int parent);

}  // namespace skein::launch
