// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How long does a step take on many ranks, and how much of that is waiting for the others?
//
// A pure model, for plans. Of the whole buffers that a stage gathers and sums, each of n ranks
// sends (n-1)/n; the slower of the links inside a node and between nodes carries it, one buffer
// after the other. The step is gone through unit by unit, in the order of parallel/schedule.h: a
// unit is computed once its weights are there, and its gradient leaves once it is whole.
//   stage 0      sums and hands back gradients during the last micro-batch's backward,
//   stage 1      sums them there; gathers new weights during the first forward of the next step,
//   stage 2      the same, with sums during every micro-batch's backward,
//   stage 3      gathers blocks one ahead in every forward and backward, root units once a step;
//                sums in every backward.
// One sum is under way while the next unit's gradient is made. So what a unit sends is hidden as
// far as others compute meanwhile; the embedding and the first block, which come first and are
// summed last, by nothing. Blocks are alike, the head is computed behind them.

#include <cstdint>
#include <vector>

#include "skein/plan/families/shapes.h"

namespace skein::plan {

struct WorldShape {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;

  int64_t size() const { return nodes * ranks_per_node; }
};

// Bytes per second that are reached, one direction.
struct Links {
  double inside = 0;   // a node: of each rank
  double between = 0;  // nodes: of each node
  // Every rank sends its parts of a sum to every other by itself, so that between nodes they go
  // once for each rank (Gloo). Otherwise they cross once for each node (NCCL). Gathers travel in a
  // ring.
  bool flat = false;
  double latency = 0;  // seconds of a transfer, however short
  // Seconds that a rank's own work stands still for each byte that it sends: on CPUs, where the
  // cores that compute also move bytes and add them up.
  double busy = 0;
};

// Bytes per element on the way.
struct ElementBytes {
  double weights = 2, gradients = 2;
  double adapters = 4;  // both of theirs
};

// Bytes of one unit, whole.
struct UnitTraffic {
  bool root = false;
  bool reached = true;   // by backward
  double weights = 0;    // that stage 3 gathers
  double published = 0;  // weights that an update changes, gathered by stages 1 and 2
  double gradients = 0;
};

struct StepTraffic {
  int stage = 0;
  int64_t micro_batches = 1;
  std::vector<UnitTraffic> units;  // in the order of forward

  // Of an update, as if one rank sent all of each buffer.
  double gathered() const;  // weights
  double summed() const;    // gradients, once
  // What stage 0 hands back counts too.
  double bytes() const { return gathered() + (stage == 0 ? 2 : 1) * summed(); }
};

// What stage 0 to 3 moves for these shapes in an update of so many micro-batches.
StepTraffic step_traffic(const Shapes& shapes, int stage, int64_t micro_batches,
                         const ElementBytes& bytes);

// Seconds of one rank's own work in an update.
struct Work {
  double forward = 0;   // of all micro-batches
  double backward = 0;  // the same
  double update = 0;
  double head_share = 0;  // of forward and backward; blocks share the rest

  double seconds() const { return forward + backward + update; }
};

struct StepTime {
  Work work;
  double communication = 0;  // all of it, as if nothing were hidden
  double exposed = 0;        // what is not hidden, and what moving the rest takes of busy cores
  double one_rank = 0;       // seconds of the same rows there

  double seconds() const { return work.seconds() + exposed; }
  // Against one rank. Stages 1 to 3 divide the optimizer's work, so that it may be above 1.
  double efficiency() const { return seconds() > 0 ? one_rank / seconds() : 1; }
};

// Seconds for so many whole bytes.
double gather_seconds(double bytes, const WorldShape& world, const Links& links);
double sum_seconds(double bytes, const WorldShape& world, const Links& links);

// `one_rank` is that of `work`.
StepTime step_time(const Work& work, const StepTraffic& traffic, const WorldShape& world,
                   const Links& links);

}  // namespace skein::plan
