// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How long does a step take on many ranks, and how much of that is waiting for the others?
//
// A pure model, for plans. Of the whole buffers that a stage gathers and sums, each of n ranks
// sends (n-1)/n; the slower of the links inside a node and between nodes carries it. What a stage
// sends while it computes is hidden under that part of the step, as far as it is long enough:
//   stage 0      sums and hands back gradients under the last micro-batch's backward,
//   stage 1      sums them there; gathers new weights under the first forward of the next step,
//   stage 2      the same, with sums under every micro-batch's backward,
//   stage 3      gathers blocks under every forward and backward, sums under every backward.
// Of each kind the first or last piece has nothing left to hide under. Latency is left out: it
// counts where units are so small that no link is busy.

#include <cstdint>

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
  // Every rank sends to every other by itself, so that between nodes all goes once for each rank
  // (Gloo). Otherwise sums cross once for each node, and gathers travel in a ring (NCCL).
  bool flat = false;
};

struct Transfer {
  double bytes = 0;     // whole, per update
  int64_t pieces = 0;   // that it is sent in
  int64_t windows = 1;  // micro-batches that it is spread over
};

struct StepTraffic {
  Transfer forward_gathers, backward_gathers;
  Transfer sums;  // stage 0's are handed back as well, and count twice

  double bytes() const { return forward_gathers.bytes + backward_gathers.bytes + sums.bytes; }
};

// Bytes per element on the way.
struct ElementBytes {
  double weights = 2, gradients = 2;
  double adapters = 4;  // both of theirs
};

// What stage 0 to 3 moves for these shapes in an update of so many micro-batches.
StepTraffic step_traffic(const Shapes& shapes, int stage, int64_t micro_batches,
                         const ElementBytes& bytes);

// Seconds of one rank's own work in an update.
struct Work {
  double forward = 0;   // of all micro-batches
  double backward = 0;  // the same
  double update = 0;
};

struct StepTime {
  Work work;
  double communication = 0;  // all of it, as if nothing were hidden
  double exposed = 0;        // what is not hidden

  double computing() const { return work.forward + work.backward + work.update; }
  double seconds() const { return computing() + exposed; }
  double efficiency() const { return seconds() > 0 ? computing() / seconds() : 1; }
};

// Seconds for so many whole bytes.
double gather_seconds(double bytes, const WorldShape& world, const Links& links);
double sum_seconds(double bytes, const WorldShape& world, const Links& links);

StepTime step_time(const Work& work, const StepTraffic& traffic, int64_t micro_batches,
                   const WorldShape& world, const Links& links);

}  // namespace skein::plan
