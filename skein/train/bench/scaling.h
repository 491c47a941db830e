// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How well do more ranks pay? Steps of bench.h on worlds of several sizes, under several stages,
// beside what plan/scaling predicts for them.
//
// All ranks of the launch are always at work: for a world of n they form groups of n, each of which
// takes the same steps (launchers compare the calls of all ranks). So cores, memory and switches
// are as busy for one rank as for all, and what is lost is what being together costs.

#include <cstdint>
#include <optional>
#include <vector>

#include "skein/plan/scaling/scaling.h"
#include "skein/plan/scaling/worlds.h"
#include "skein/train/bench/bench.h"
#include "skein/train/world.h"

namespace skein::train {

struct ScalingOptions {
  BenchOptions bench;          // its stage and device are set here
  std::vector<int64_t> ranks;  // sizes of worlds; empty: all that the launch can be divided into
  std::vector<int> stages;     // on one rank, where they are alike, the first
  int64_t rounds = 1;          // of everything, in turn: a machine that slows down slows all
};

// Between two nodes, all of whose ranks exchange at once.
struct NodeLink {
  int64_t first = 0, second = 0;
  double bytes_per_second = 0;  // that a node sends
  double latency = 0;           // seconds of a short sum
  double cpu_per_byte = 0;      // seconds of a rank's cores for a byte that it sends
};

struct ScalingCase {
  plan::WorldShape world;
  int stage = 0;
  double seconds = 0;                            // of the median step
  int64_t flat_bytes = 0, device_bytes = 0;      // peaks, of the rank that has most
  double efficiency = 1;                         // against the smallest world, rank by rank
  std::optional<plan::StepTime> predicted = {};  // where one rank was measured
};

struct ScalingReport {
  int64_t num_parameters = 0;
  std::vector<NodeLink> links;  // of all pairs of nodes
  std::vector<ScalingCase> cases;
  struct Outlook {
    int stage = 0;
    std::vector<plan::ScalingRow> rows;
  };
  std::vector<Outlook> outlooks;  // of worlds that are not there; empty without one rank
};

// Collective; all ranks have the same report. Throws UserError when the launch cannot be divided as
// asked.
ScalingReport bench_scaling(const ScalingOptions& options, World& world);

}  // namespace skein::train
