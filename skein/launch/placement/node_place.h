// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many nodes does the run have, and which of them is this? Flags say it, else variables.

#include <optional>
#include <string>

#include "skein/launch/placement/foreign_rank.h"
#include "skein/launch/placement/launch_flags.h"
#include "skein/launch/placement/variables.h"

namespace skein::launch {

struct NodePlace {
  int count = 1;
  int rank = 0;
  std::string address;      // of node 0, where there are several
  int port = 0;             // there
  std::string origin;       // of the count: "--nnodes", "WORLD_SIZE"
  std::string rank_origin;  // "--node-rank", "NODE_RANK"; empty: nobody said
};

// `nproc` is the number of ranks per node, where a number was asked for: WORLD_SIZE may count
// ranks when something else counts nodes. Throws UserError for contradictions, and when several
// nodes lack what they need to meet, with the line to type.
NodePlace find_node_place(const LaunchFlags& flags, const Environment& environment,
                          std::optional<int> nproc);

// One task per node of srun or mpirun, each of which starts its own ranks.
NodePlace node_place_of_task(const FoundRank& found);

}  // namespace skein::launch
