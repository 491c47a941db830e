// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/scaling.h"

#include <algorithm>

#include "skein/core/error.h"
#include "skein/plan/cost/flops.h"

namespace skein::plan {
namespace {

// What is reached of a data sheet's rates: collectives over NVLink and PCIe, reads and writes of
// the optimizer, TCP or RDMA over a network.
constexpr double kReachedInside = 0.8, kReachedMemory = 0.8, kReachedBetween = 0.9;
constexpr double kSharedMemoryRate = 4e9;  // bytes per second of a rank on CPUs

Work work_of(const Shapes& shapes, const Dimensions& dimensions, const StepQuestion& question,
             int64_t ranks) {
  const double forward = training_flops_per_token(dimensions, question.tokens) / 3;
  double backward = TrainingFlops(dimensions, shapes).per_token(question.tokens) - forward;
  if (question.choice.recompute) backward += forward;
  const double both = forward + backward;
  if (question.compute_seconds > 0) {
    return {.forward = question.compute_seconds * forward / both,
            .backward = question.compute_seconds * backward / both};
  }
  SKEIN_CHECK(question.gpu != nullptr, "a CPU has no stated peak");
  const double tokens = static_cast<double>(question.choice.per_device) *
                        static_cast<double>(question.choice.accumulation) *
                        static_cast<double>(question.tokens);
  const double rate = question.gpu->flops(question.dtype) * question.utilisation;
  const int64_t owners = question.choice.stage == 0 ? 1 : ranks;
  const double updated = static_cast<double>(shapes.trainable_numel()) *
                         (2 * question.state_bytes + static_cast<double>(question.gradient_bytes) +
                          static_cast<double>(dtype_bytes(question.dtype))) /
                         static_cast<double>(owners);
  return {.forward = forward * tokens / rate,
          .backward = backward * tokens / rate,
          .update = updated / (question.gpu->memory_rate * 1e9 * kReachedMemory)};
}

Links links_of(const StepQuestion& question) {
  const double between = question.link_gbit * 1e9 / 8 * kReachedBetween;
  if (question.gpu == nullptr) return {kSharedMemoryRate, between, /*flat=*/true};
  return {question.gpu->link_rate * 1e9 * kReachedInside, between};
}

}  // namespace

StepTime predict_step(const Shapes& shapes, const Dimensions& dimensions,
                      const StepQuestion& question, const WorldShape& world) {
  const auto weight_bytes = static_cast<double>(dtype_bytes(question.dtype));
  const auto traffic = step_traffic(shapes, question.choice.stage, question.choice.accumulation,
                                    {.weights = weight_bytes,
                                     .gradients = static_cast<double>(question.gradient_bytes),
                                     .adapters = std::max(4.0, weight_bytes)});
  return step_time(work_of(shapes, dimensions, question, world.size()), traffic,
                   question.choice.accumulation, world, links_of(question));
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
    row.time = predict_step(shapes, dimensions, asked, row.world);
  }
  return rows;
}

}  // namespace skein::plan
