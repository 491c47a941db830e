// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/step_time.h"

#include <algorithm>
#include <vector>

#include "skein/plan/cost/reach.h"

namespace skein::plan {
namespace {

// Of one unit, whole.
struct UnitTraffic {
  double weights = 0, gradients = 0;
  double published = 0;  // weights that an update changes
};

std::vector<UnitTraffic> unit_traffic(const Shapes& shapes, const ElementBytes& bytes) {
  std::vector<UnitTraffic> units(shapes.units.size());
  for (const auto& parameter : shapes.parameters) {
    auto& unit = units[static_cast<size_t>(parameter.unit)];
    const auto size = static_cast<double>(parameter.memory_numel());
    const double weights = parameter.packed_bytes > 0
                               ? static_cast<double>(parameter.packed_bytes)
                               : size * (parameter.adapter ? bytes.adapters : bytes.weights);
    unit.weights += weights;
    if (!parameter.trainable) continue;
    unit.published += weights;
    unit.gradients += size * (parameter.adapter ? bytes.adapters : bytes.gradients);
  }
  return units;
}

void add(Transfer& transfer, double bytes, int64_t times) {
  if (bytes == 0) return;
  transfer.bytes += bytes * static_cast<double>(times);
  transfer.pieces += times;
}

// Stage 3: a block in every pass, a root unit once a step. The block at which forward turns into
// backward stays whole, and a frozen beginning is not gathered again.
void add_gathers(const Shapes& shapes, const std::vector<UnitTraffic>& units, int64_t micro_batches,
                 StepTraffic& traffic) {
  traffic.forward_gathers.windows = traffic.backward_gathers.windows = micro_batches;
  const auto reached = reached_units(shapes);
  size_t last_block = units.size();
  for (size_t i = 0; i < units.size(); ++i) {
    if (!shapes.units[i].root) last_block = i;
  }
  for (size_t i = 0; i < units.size(); ++i) {
    const bool root = shapes.units[i].root;
    add(traffic.forward_gathers, units[i].weights, root ? 1 : micro_batches);
    if (root || i == last_block || !reached[i]) continue;
    add(traffic.backward_gathers, units[i].weights, micro_batches);
  }
}

double share_sent(const WorldShape& world) {
  const auto size = static_cast<double>(world.size());
  return (size - 1) / size;
}

double inside_seconds(double bytes, const WorldShape& world, const Links& links) {
  return world.ranks_per_node > 1 ? bytes * share_sent(world) / links.inside : 0;
}

// What a node sends to others of whole bytes that cross once for each node.
double crossing(double bytes, const WorldShape& world) {
  const auto nodes = static_cast<double>(world.nodes);
  return bytes * (nodes - 1) / nodes;
}

// `compute`: of all micro-batches. A piece at the beginning or the end has nothing beside it.
double exposed(const Transfer& transfer, double seconds, double compute, int64_t micro_batches) {
  if (transfer.pieces == 0) return 0;
  const double window =
      compute * static_cast<double>(transfer.windows) / static_cast<double>(micro_batches);
  return std::max(seconds - window, seconds / static_cast<double>(transfer.pieces));
}

}  // namespace

StepTraffic step_traffic(const Shapes& shapes, int stage, int64_t micro_batches,
                         const ElementBytes& bytes) {
  const auto units = unit_traffic(shapes, bytes);
  StepTraffic traffic;
  if (stage >= 2) traffic.sums.windows = micro_batches;
  for (size_t i = 0; i < units.size(); ++i) {
    // Root units' gradients stay whole until the last micro-batch.
    const bool once = stage < 2 || shapes.units[i].root;
    add(traffic.sums, (stage == 0 ? 2 : 1) * units[i].gradients, once ? 1 : micro_batches);
    if (stage == 1 || stage == 2) add(traffic.forward_gathers, units[i].published, 1);
  }
  if (stage == 3) add_gathers(shapes, units, micro_batches, traffic);
  return traffic;
}

double gather_seconds(double bytes, const WorldShape& world, const Links& links) {
  const double inside = inside_seconds(bytes, world, links);
  if (world.nodes == 1) return inside;
  const double sent = links.flat
                          ? crossing(bytes, world) * static_cast<double>(world.ranks_per_node)
                          : bytes * share_sent(world);
  return std::max(inside, sent / links.between);
}

double sum_seconds(double bytes, const WorldShape& world, const Links& links) {
  const double inside = inside_seconds(bytes, world, links);
  if (world.nodes == 1) return inside;
  const double ranks = links.flat ? static_cast<double>(world.ranks_per_node) : 1;
  return std::max(inside, crossing(bytes, world) * ranks / links.between);
}

StepTime step_time(const Work& work, const StepTraffic& traffic, int64_t micro_batches,
                   const WorldShape& world, const Links& links) {
  StepTime time{.work = work};
  if (world.size() == 1) return time;
  const double forward = gather_seconds(traffic.forward_gathers.bytes, world, links);
  const double backward = gather_seconds(traffic.backward_gathers.bytes, world, links) +
                          sum_seconds(traffic.sums.bytes, world, links);
  time.communication = forward + backward;
  // One link carries what is gathered and summed during backward.
  time.exposed = exposed(traffic.forward_gathers, forward, work.forward, micro_batches) +
                 exposed(traffic.sums, backward, work.backward, micro_batches);
  return time;
}

}  // namespace skein::plan
