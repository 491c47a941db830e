// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How many ranks on this machine, and on what?

#include <optional>
#include <string>

#include "skein/launch/placement/detect.h"

namespace skein::launch {

constexpr int kMostLocalRanks = 4096;

// What was asked for: a number, or one of the words auto, gpu, cpu.
struct RankRequest {
  std::optional<std::string> text;
  std::string origin;
  bool gpus_only = false;

  std::optional<int> number() const;
};

// --num-gpus, --nproc-per-node, NPROC_PER_NODE. Throws UserError when the flags differ.
RankRequest find_request(const LaunchFlags& flags, const Environment& environment);

// Why no GPU can be used; empty if one can.
std::string why_no_gpu(const Situation& situation);

// Without a request: all visible GPUs, else one CPU rank. Fills the ranks, the device, the threads
// and the summary. Throws UserError when there are not enough GPUs.
LaunchPlan plan_ranks(const Situation& situation, const RankRequest& request);

}  // namespace skein::launch
