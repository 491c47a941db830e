// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/scaling.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "skein/core/error.h"
#include "skein/plan/cost/flops.h"

namespace skein::plan {
namespace {

// What is reached of a data sheet's rates: collectives over NVLink and PCIe, reads and writes of
// the optimizer, TCP or RDMA over a network.
constexpr double kReachedInside = 0.8, kReachedMemory = 0.8, kReachedBetween = 0.9;
constexpr double kSharedMemoryRate = 4e9;  // bytes per second of a rank on CPUs
// Seconds of a core for each byte that it sends in a sum, through shared memory and over TCP.
constexpr double kBusyInside = 0.2e-9, kBusyBetween = 0.6e-9;

// Of the optimizer, which reads and writes all states.
double update_seconds(const Shapes& shapes, const StepQuestion& question) {
  if (question.update_seconds > 0) return question.update_seconds;
  if (question.gpu == nullptr) return 0;
  const double bytes = 2 * question.state_bytes + static_cast<double>(question.gradient_bytes) +
                       static_cast<double>(dtype_bytes(question.dtype));
  return static_cast<double>(shapes.trainable_numel()) * bytes /
         (question.gpu->memory_rate * 1e9 * kReachedMemory);
}

double head_share(const TrainingFlops& flops, int64_t tokens) {
  double head = 0, all = 0;
  for (const auto& part : flops.parts(std::array{tokens})) {
    all += part.flops;
    if (part.component == std::string_view("head")) head = part.flops;
  }
  return head / all;
}

// Seconds of forward and backward.
double passes_seconds(const StepQuestion& question, double flops_per_token, double update) {
  if (question.compute_seconds > 0) return std::max(0.0, question.compute_seconds - update);
  SKEIN_CHECK(question.gpu != nullptr, "a CPU has no stated peak");
  const double tokens = static_cast<double>(question.choice.per_device) *
                        static_cast<double>(question.choice.accumulation) *
                        static_cast<double>(question.tokens);
  return flops_per_token * tokens / (question.gpu->flops(question.dtype) * question.utilisation);
}

// On one rank.
Work work_of(const Shapes& shapes, const Dimensions& dimensions, const StepQuestion& question) {
  const TrainingFlops flops(dimensions, shapes);
  const double forward = training_flops_per_token(dimensions, question.tokens) / 3;
  double backward = flops.per_token(question.tokens) - forward;
  if (question.choice.recompute) backward += forward;
  const double both = forward + backward;
  double update = update_seconds(shapes, question);
  if (question.compute_seconds > 0) update = std::min(update, question.compute_seconds);
  const double passes = passes_seconds(question, both, update);
  return {.forward = passes * forward / both,
          .backward = passes * backward / both,
          .update = update,
          .head_share = head_share(flops, question.tokens)};
}

double busy_of(const StepQuestion& question, const WorldShape& world) {
  if (question.gpu != nullptr) return 0;
  if (question.busy_per_byte > 0) return question.busy_per_byte;
  return world.nodes > 1 ? kBusyBetween : kBusyInside;
}

Links links_of(const StepQuestion& question, const WorldShape& world) {
  const bool cpu = question.gpu == nullptr;
  const double inside = cpu ? kSharedMemoryRate : question.gpu->link_rate * 1e9 * kReachedInside;
  const double between = question.link_gbit * 1e9 / 8 * kReachedBetween;
  return {.inside = question.inside_rate > 0 ? question.inside_rate : inside,
          .between = question.between_rate > 0 ? question.between_rate : between,
          .flat = cpu,
          .latency = question.latency,
          .busy = busy_of(question, world)};
}

}  // namespace

StepTime predict_step(const Shapes& shapes, const Dimensions& dimensions,
                      const StepQuestion& question, const WorldShape& world) {
  const auto weight_bytes = static_cast<double>(dtype_bytes(question.dtype));
  const auto traffic = step_traffic(shapes, question.choice.stage, question.choice.accumulation,
                                    {.weights = weight_bytes,
                                     .gradients = static_cast<double>(question.gradient_bytes),
                                     .adapters = std::max(4.0, weight_bytes)});
  const auto alone = work_of(shapes, dimensions, question);
  auto work = alone;
  if (question.choice.stage > 0) work.update /= static_cast<double>(world.size());
  auto time = step_time(work, traffic, world, links_of(question, world));
  time.one_rank = alone.seconds();
  return time;
}

std::vector<ScalingRow> predict_scaling(const Shapes& shapes, const Dimensions& dimensions,
                                        const StepQuestion& question) {
  std::vector<ScalingRow> rows = {{.world = {1, 2}}, {.world = {1, 4}}, {.world = {1, 8}}};
  for (const double gbit : {10.0, 100.0}) {
    for (const int64_t nodes : {2, 4}) {
      rows.push_back({.world = {nodes, 4}, .link_gbit = gbit, .time = {}});
    }
  }
  for (auto& row : rows) {
    auto asked = question;
    asked.link_gbit = row.link_gbit;
    asked.between_rate = asked.busy_per_byte = 0;
    row.time = predict_step(shapes, dimensions, asked, row.world);
  }
  return rows;
}

}  // namespace skein::plan
