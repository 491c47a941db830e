// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many machines were asked for, and which is this? Flags, then variables.

#include <optional>
#include <string>

#include "skein/launch/plan/foreign_rank.h"
#include "skein/launch/plan/launch_flags.h"
#include "skein/launch/plan/variables.h"

namespace skein::launch {

struct Machines {
  int count = 1;
  int rank = 0;
  std::string address;      // of machine 0, where there are several
  int port = 0;             // there
  std::string origin;       // of the count: "--nnodes", "WORLD_SIZE"
  std::string rank_origin;  // "--node-rank", "NODE_RANK"; empty: nobody said
};

// `nproc` is the number of ranks per machine, where a number was asked for: WORLD_SIZE may count
// ranks when something else counts machines. Throws UserError for contradictions, and when several
// machines lack what they need to meet, with the line to type.
Machines find_machines(const LaunchFlags& flags, const Environment& environment,
                       std::optional<int> nproc);

// One task per machine of srun or mpirun, each of which starts its own ranks.
Machines machines_of_tasks(const FoundRank& found);

}  // namespace skein::launch
