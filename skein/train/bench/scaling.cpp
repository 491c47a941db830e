// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/bench/scaling.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "skein/board/board.h"
#include "skein/comm/link_rate.h"
#include "skein/config/syntax/values.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/rules.h"
#include "skein/report/gpu_table.h"
#include "skein/tensor/dtype.h"
#include "skein/train/place.h"

namespace skein::train {
namespace {

using Values = std::vector<double>;

double median(Values values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// By rank; every rank gives equally many.
std::vector<Values> all_of(comm::Group& group, const Values& own) {
  Values all(own.size() * static_cast<size_t>(group.size()));
  std::ranges::copy(own, all.begin() + std::ssize(own) * group.rank());
  all = group.sum(all);
  std::vector<Values> by_rank;
  for (auto begin = all.begin(); begin != all.end(); begin += std::ssize(own)) {
    by_rank.emplace_back(begin, begin + std::ssize(own));
  }
  return by_rank;
}

plan::WorldShape shape_of(World& world) {
  const auto sizes = all_of(world.group, {static_cast<double>(world.local_size)});
  for (const auto& size : sizes) {
    if (size != sizes.front()) {
      throw UserError("skein bench scaling needs the same number of ranks on every machine");
    }
  }
  return {world.group.size() / world.local_size, world.local_size};
}

// Everybody meets everybody once in as many rounds as there are nodes: in round k, node a meets
// k - a. One may be left over.
std::vector<NodeLink> measure_nodes(World& world, const plan::WorldShape& launch) {
  std::vector<NodeLink> links;
  const int64_t nodes = launch.nodes, node = world.group.rank() / world.local_size;
  const auto partner = [&](int64_t round, int64_t a) { return (round - a + nodes) % nodes; };
  for (int64_t round = 0; round < nodes; ++round) {
    if (nodes == 2 && round == 0) continue;  // both would be left over
    const int64_t other = partner(round, node);
    auto pair = world.group.split(std::min(node, other) * world.local_size + world.local_rank);
    const auto own = comm::measure_link(pair, world.group, world.device);
    const auto rates = all_of(world.group, {own.bytes_per_second, own.latency, own.cpu_per_byte});
    pair.shutdown();
    for (int64_t a = 0; a < nodes; ++a) {
      if (partner(round, a) <= a) continue;
      NodeLink link{.first = a, .second = partner(round, a)};
      for (int64_t i = 0; i < world.local_size; ++i) {
        const auto& rate = rates[static_cast<size_t>(a * world.local_size + i)];
        link.bytes_per_second += rate[0];
        link.latency = std::max(link.latency, rate[1]);
        link.cpu_per_byte = std::max(link.cpu_per_byte, rate[2]);
      }
      links.push_back(link);
    }
  }
  return links;
}

// A world of one size: this rank's, the others' of the same size beside it.
struct Part {
  plan::WorldShape shape;
  comm::Group group;
  comm::LinkRate inside;  // a node; nothing where a node has one rank of it
};

comm::LinkRate measure_inside(World& world, int64_t ranks) {
  if (ranks == 1) return {};
  const bool all = ranks == world.group.size();
  auto part = all ? world.group : world.group.split(world.group.rank() / ranks);
  const auto own = comm::measure_link(part, world.group, world.device);
  if (!all) part.shutdown();
  comm::LinkRate slowest = own;
  for (const auto& rate :
       all_of(world.group, {own.bytes_per_second, own.latency, own.cpu_per_byte})) {
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, rate[0]);
    slowest.latency = std::max(slowest.latency, rate[1]);
    slowest.cpu_per_byte = std::max(slowest.cpu_per_byte, rate[2]);
  }
  return slowest;
}

Part make_part(World& world, const plan::WorldShape& shape) {
  Part part{.shape = shape, .group = {}, .inside = measure_inside(world, shape.ranks_per_node)};
  if (shape.size() == world.group.size()) {
    part.group = world.group;  // which may sum node by node
  } else if (shape.size() > 1) {
    part.group = world.group.split(world.group.rank() / shape.size());
  }
  return part;
}

// What was measured of a world under a stage.
struct Measured {
  const Part* part = nullptr;
  int stage = 0;
  std::vector<Values> seconds = {};  // by rank of the launch, of every step
  Values update_seconds = {};        // of every round, of this rank
  Values core_seconds = {};          // the same: on the clock for a second of a core's work
  int64_t flat_bytes = 0, device_bytes = 0;
  int64_t num_parameters = 0;
};

void measure(const ScalingOptions& options, World& world, Measured& measured) {
  auto bench = options.bench;
  bench.stage = measured.stage;
  bench.device = world.device;
  const board::HostWork work("measuring steps");
  const auto result = bench_training(bench, measured.part->group);
  if (!(result.last_loss < result.first_loss)) {
    throw InternalError("the loss did not fall: the figures are of no use");
  }
  const auto seconds = all_of(world.group, result.seconds);
  measured.seconds.resize(seconds.size());
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    auto& all = measured.seconds[rank];
    all.insert(all.end(), seconds[rank].begin(), seconds[rank].end());
  }
  measured.update_seconds.push_back(result.update_seconds);
  measured.core_seconds.push_back(result.median_seconds() * at::get_num_threads() /
                                  result.cpu_seconds);
  measured.num_parameters = result.num_parameters;
  for (const auto& bytes : all_of(world.group, {static_cast<double>(result.peak_flat_bytes),
                                                static_cast<double>(result.peak_device_bytes)})) {
    measured.flat_bytes = std::max(measured.flat_bytes, static_cast<int64_t>(bytes[0]));
    measured.device_bytes = std::max(measured.device_bytes, static_cast<int64_t>(bytes[1]));
  }
}

// Of a world of the first so many ranks: the median step, each as long as its slowest rank's.
double step_seconds(const std::vector<Values>& seconds, int64_t ranks) {
  auto slowest = seconds.front();
  for (int64_t rank = 1; rank < ranks; ++rank) {
    std::ranges::transform(slowest, seconds[static_cast<size_t>(rank)], slowest.begin(),
                           [](double a, double b) { return std::max(a, b); });
  }
  return median(std::move(slowest));
}

// Of a rank, whichever group it was in.
double typical_seconds(const std::vector<Values>& seconds) {
  double sum = 0;
  for (const auto& of_rank : seconds) sum += median(of_rank);
  return sum / static_cast<double>(seconds.size());
}

// Asks plan/scaling for the worlds that were measured, and for others.
class Prediction {
 public:
  Prediction(const ScalingOptions& options, const World& world, const Measured& one_rank,
             std::vector<NodeLink> links)
      : config_(plan::read_hf_config(options.bench.model)),
        one_rank_(one_rank),
        links_(std::move(links)) {
    const auto& bench = options.bench;
    question_ = {.choice = {.per_device = bench.rows,
                            .accumulation = bench.accumulation,
                            .recompute = bench.recompute},
                 .tokens = bench.tokens,
                 .dtype = tensor::dtype_of(bench.dtype)};
    if (world.device.is_cuda()) question_.gpu = report::find_gpu(device_name(world.device));
    const auto gradients = plan::gradient_dtype(question_.dtype, bench.accumulation > 1);
    question_.gradient_bytes = static_cast<int64_t>(dtype_bytes(gradients));
    question_.state_bytes = plan::state_bytes_each({}, question_.dtype);
    question_.update_seconds = median(one_rank.update_seconds);
  }

  // Ranks step together: each step takes as long as the slowest one's.
  plan::StepTime of(const Measured& measured) const {
    const auto& part = *measured.part;
    auto question = question_;
    question.choice.stage = measured.stage;
    question.compute_seconds = step_seconds(one_rank_.seconds, part.shape.size());
    question.inside_rate = part.inside.bytes_per_second;
    question.latency = part.inside.latency;
    double cpu = part.inside.cpu_per_byte;
    for (const auto& link : links_) {  // one slow link holds all up
      if (part.shape.nodes == 1) break;
      const double rate = question.between_rate;
      question.between_rate =
          rate > 0 ? std::min(rate, link.bytes_per_second) : link.bytes_per_second;
      question.latency = std::max(question.latency, link.latency);
      cpu = std::max(cpu, link.cpu_per_byte);
    }
    // Other programs stretch what moving bytes takes as they stretch a step.
    question.busy_per_byte = cpu * median(one_rank_.core_seconds);
    auto time = plan::predict_step(config_.shapes(), config_.dimensions(), question, part.shape);
    time.one_rank = typical_seconds(one_rank_.seconds);
    return time;
  }

  std::vector<plan::ScalingRow> elsewhere(int stage, const comm::LinkRate& inside) const {
    auto question = question_;
    question.choice.stage = stage;
    question.compute_seconds = typical_seconds(one_rank_.seconds);
    question.inside_rate = inside.bytes_per_second;
    question.latency = inside.latency;
    return plan::predict_scaling(config_.shapes(), config_.dimensions(), question);
  }

 private:
  plan::HfConfig config_;
  const Measured& one_rank_;
  std::vector<NodeLink> links_;
  plan::StepQuestion question_;
};

std::vector<Measured> cases_of(const std::vector<Part>& parts, const std::vector<int>& stages) {
  std::vector<Measured> cases;
  for (const auto& part : parts) {
    for (const int stage : stages) {
      cases.push_back({.part = &part, .stage = stage});
      if (part.shape.size() == 1) break;  // nothing is divided there
    }
  }
  return cases;
}

ScalingReport report_of(const ScalingOptions& options, const World& world,
                        const std::vector<Measured>& cases, std::vector<NodeLink> links) {
  ScalingReport report{.num_parameters = cases.front().num_parameters, .links = std::move(links)};
  const double base = typical_seconds(cases.front().seconds);
  std::optional<Prediction> prediction;
  if (cases.front().part->shape.size() == 1) {
    prediction.emplace(options, world, cases.front(), report.links);
  }
  for (const auto& measured : cases) {
    const auto& shape = measured.part->shape;
    // The first group's is the row's; one rank's is that of all.
    const double seconds = shape.size() == 1 ? base : median(measured.seconds.front());
    ScalingCase row{.world = shape,
                    .stage = measured.stage,
                    .seconds = seconds,
                    .flat_bytes = measured.flat_bytes,
                    .device_bytes = measured.device_bytes,
                    .efficiency = base / seconds};
    if (prediction && shape.size() > 1) row.predicted = prediction->of(measured);
    report.cases.push_back(row);
  }
  if (!prediction) return report;
  for (const int stage : options.stages) {
    report.outlooks.push_back({stage, prediction->elsewhere(stage, cases.back().part->inside)});
  }
  return report;
}

}  // namespace

ScalingReport bench_scaling(const ScalingOptions& options, World& world) {
  const auto launch = shape_of(world);
  const auto shapes = plan::worlds_within(launch, options.ranks);
  std::vector<NodeLink> links;
  if (launch.nodes > 1) links = measure_nodes(world, launch);
  for (const auto& link : links) {
    if (!world.is_first()) break;
    log_info("link: nodes {} and {}: {:.2f} Gbit/s each way, {:.0f} us", link.first, link.second,
             link.bytes_per_second * 8e-9, link.latency * 1e6);
  }
  std::vector<Part> parts;
  for (const auto& shape : shapes) parts.push_back(make_part(world, shape));
  auto cases = cases_of(parts, options.stages);
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (auto& measured : cases) {
      if (world.is_first()) {
        log_info("{}, {}: round {} of {}",
                 counted(static_cast<uint64_t>(measured.part->shape.size()), "rank"),
                 config::to_text(plan::strategy_of(measured.stage)), round + 1, options.rounds);
      }
      measure(options, world, measured);
    }
  }
  auto report = report_of(options, world, cases, std::move(links));
  for (auto& part : parts) {
    if (part.shape.size() < launch.size()) part.group.shutdown();
  }
  return report;
}

}  // namespace skein::train
