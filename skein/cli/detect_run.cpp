// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/detect_run.h"

#include <algorithm>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/host_memory.h"

namespace skein::cli {

plan::Place DetectedRun::place() const {
  return {.device = launch.device,
          .has_bfloat16 = hardware.gpus_have_bfloat16,
          .has_nccl = SKEIN_HAS_CUDA};
}

namespace {

// All that a machine has, where others leave most of it: a plan is to be the same tomorrow. Else
// what they leave.
uint64_t memory_to_plan_with() {
  const auto usable = std::min(total_memory(), memory_limit().value_or(total_memory()));
  const auto left = available_memory();
  return left > 0 && left < usable / 4 * 3 ? left : usable;
}

}  // namespace

plan::Machine DetectedRun::machine() const {
  return {.ranks = launch.size(),
          .local_ranks = launch.foreign ? launch.foreign->local_size : launch.local_ranks,
          .place = place(),
          .memory = {.host = memory_to_plan_with(), .gpu = hardware.gpu_memory}};
}

DetectedRun detect_run(launch::LaunchFlags flags, const launch::Environment& environment,
                       const config::ParallelConfig& parallel) {
  if (!parallel.distributed) {
    if (flags.nproc_per_node || flags.num_gpus) {
      throw UserError(
          "distributed: false means one rank; drop it, or the flag that asks for ranks");
    }
    flags.nproc_per_node = "1";
  }
  DetectedRun run{.hardware = launch::look_at_hardware(
                      /*ask_gpus=*/parallel.device != config::Device::kCpu)};
  run.launch = launch::detect({.flags = std::move(flags),
                               .environment = environment,
                               .hardware = run.hardware,
                               .device = parallel.device,
                               .cuda_build = SKEIN_HAS_CUDA});
  return run;
}

}  // namespace skein::cli
