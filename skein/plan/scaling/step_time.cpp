// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/step_time.h"

#include <algorithm>

#include "skein/plan/cost/reach.h"

namespace skein::plan {
namespace {

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

int last_block(const std::vector<UnitTraffic>& units) {
  int last = -1;
  for (int i = 0; i < std::ssize(units); ++i) {
    if (!units[static_cast<size_t>(i)].root) last = i;
  }
  return last;
}

// The clock of a rank, and that of the link, which carries one buffer after the other.
class Simulation {
 public:
  Simulation(const Work& work, const StepTraffic& traffic, const WorldShape& world,
             const Links& links)
      : traffic_(traffic), world_(world), links_(links), last_block_(plan::last_block(units())) {
    double blocks = 0, reached = 0;
    for (const auto& unit : units()) {
      blocks += !unit.root;
      reached += !unit.root && unit.reached;
    }
    const auto count = static_cast<double>(traffic.micro_batches);
    const double rest = 1 - work.head_share;
    head_ = {work.forward * work.head_share / count, work.backward * work.head_share / count};
    block_ = {blocks > 0 ? work.forward * rest / count / blocks : 0,
              reached > 0 ? work.backward * rest / count / reached : 0};
  }

  void run() {
    there_.assign(units().size(), 0);
    begin_step();
    for (int64_t i = 0; i < traffic_.micro_batches; ++i) {
      forward();
      backward(/*last=*/i + 1 == traffic_.micro_batches);
    }
  }

  double now() const { return now_; }
  double communication() const { return communication_; }

 private:
  struct Seconds {
    double forward = 0, backward = 0;
  };
  const std::vector<UnitTraffic>& units() const { return traffic_.units; }
  const UnitTraffic& unit(int i) const { return units()[static_cast<size_t>(i)]; }
  int num_units() const { return static_cast<int>(units().size()); }

  // Returns when it has ended.
  double send(double seconds) {
    communication_ += seconds;
    link_ = std::max(link_, now_) + seconds;
    return link_;
  }
  void gather(int i, double bytes) {
    if (bytes > 0) there_[static_cast<size_t>(i)] = send(gather_seconds(bytes, world_, links_));
  }
  void wait_for(int i) { now_ = std::max(now_, there_[static_cast<size_t>(i)]); }

  // New weights, or root units.
  void begin_step() {
    for (int i = 0; i < num_units(); ++i) {
      if (traffic_.stage == 1 || traffic_.stage == 2) gather(i, unit(i).published);
      if (traffic_.stage == 3 && unit(i).root) gather(i, unit(i).weights);
    }
  }

  void gather_block(int i) {
    if (traffic_.stage == 3 && i >= 0) gather(i, unit(i).weights);
  }
  int next_block(int i) const {
    for (++i; i < num_units(); ++i) {
      if (!unit(i).root) return i;
    }
    return -1;
  }
  int block_before(int i) const {
    for (--i; i >= 0; --i) {
      if (!unit(i).root) return unit(i).reached ? i : -1;
    }
    return -1;
  }

  void forward() {
    gather_block(next_block(-1));
    for (int i = 0; i < num_units(); ++i) {
      if (!unit(i).root) gather_block(next_block(i));
      wait_for(i);
      if (!unit(i).root) now_ += block_.forward;
    }
    now_ += head_.forward;
  }

  void backward(bool last) {
    now_ += head_.backward;
    for (int i = num_units() - 1; i >= 0; --i) {
      if (unit(i).root) {
        if (last) sum(unit(i));
        continue;
      }
      if (!unit(i).reached) continue;
      gather_block(block_before(i));
      if (i != last_block_) wait_for(i);  // that one has stayed whole
      now_ += block_.backward;
      if (last || traffic_.stage >= 2) sum(unit(i));
    }
    now_ = std::max(now_, summed_);
  }

  // Waits for the sum before it.
  void sum(const UnitTraffic& unit) {
    if (unit.gradients == 0) return;
    now_ = std::max(now_, summed_);
    double seconds = sum_seconds(unit.gradients, world_, links_);
    if (traffic_.stage == 0) {  // handed back
      seconds += links_.flat ? gather_seconds(unit.gradients, world_, links_)
                             : sum_seconds(unit.gradients, world_, links_);
    }
    summed_ = send(seconds);
  }

  const StepTraffic& traffic_;
  const WorldShape& world_;
  const Links& links_;
  int last_block_;
  Seconds head_, block_;
  double now_ = 0, link_ = 0;
  double summed_ = 0;          // when the sum under way will have ended
  std::vector<double> there_;  // by unit: when its weights will be
  double communication_ = 0;
};

}  // namespace

double StepTraffic::summed() const {
  double bytes = 0;
  for (const auto& unit : units) {
    // Root units' gradients stay whole until the last micro-batch.
    const bool once = stage < 2 || unit.root;
    bytes += unit.gradients * (once ? 1 : static_cast<double>(micro_batches));
  }
  return bytes;
}

double StepTraffic::gathered() const {
  double bytes = 0;
  const int last = last_block(units);
  for (int i = 0; i < std::ssize(units); ++i) {
    const auto& unit = units[static_cast<size_t>(i)];
    if (stage == 1 || stage == 2) bytes += unit.published;
    if (stage < 3) continue;
    // A block in every pass, a root unit once a step. The block at which forward turns into
    // backward stays whole, and a frozen beginning is not gathered again.
    const double passes = i == last || !unit.reached ? 1 : 2;
    bytes += unit.weights * (unit.root ? 1 : passes * static_cast<double>(micro_batches));
  }
  return bytes;
}

StepTraffic step_traffic(const Shapes& shapes, int stage, int64_t micro_batches,
                         const ElementBytes& bytes) {
  StepTraffic traffic{.stage = stage, .micro_batches = micro_batches};
  const auto reached = reached_units(shapes);
  for (size_t i = 0; i < shapes.units.size(); ++i) {
    traffic.units.push_back({.root = shapes.units[i].root, .reached = reached[i]});
  }
  for (const auto& parameter : shapes.parameters) {
    auto& unit = traffic.units[static_cast<size_t>(parameter.unit)];
    const auto size = static_cast<double>(parameter.memory_numel());
    const double weights = parameter.packed_bytes > 0
                               ? static_cast<double>(parameter.packed_bytes)
                               : size * (parameter.adapter ? bytes.adapters : bytes.weights);
    unit.weights += weights;
    if (!parameter.trainable) continue;
    unit.published += weights;
    unit.gradients += size * (parameter.adapter ? bytes.adapters : bytes.gradients);
  }
  return traffic;
}

double gather_seconds(double bytes, const WorldShape& world, const Links& links) {
  const double inside = inside_seconds(bytes, world, links);
  if (world.nodes == 1) return links.latency + inside;
  return links.latency + std::max(inside, bytes * share_sent(world) / links.between);
}

double sum_seconds(double bytes, const WorldShape& world, const Links& links) {
  const double inside = inside_seconds(bytes, world, links);
  if (world.nodes == 1) return links.latency + inside;
  const double ranks = links.flat ? static_cast<double>(world.ranks_per_node) : 1;
  return links.latency + std::max(inside, crossing(bytes, world) * ranks / links.between);
}

StepTime step_time(const Work& work, const StepTraffic& traffic, const WorldShape& world,
                   const Links& links) {
  StepTime time{.work = work, .one_rank = work.seconds()};
  if (world.size() == 1) return time;
  Simulation simulation(work, traffic, world, links);
  simulation.run();
  time.communication = simulation.communication();
  const double waiting = std::max(0.0, simulation.now() - work.forward - work.backward);
  // While a rank waits, its cores are free to move bytes.
  const double hidden = time.communication > 0 ? 1 - waiting / time.communication : 0;
  time.exposed = waiting + links.busy * traffic.bytes() * share_sent(world) * hidden;
  return time;
}

}  // namespace skein::plan
