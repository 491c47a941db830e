// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which arguments say how to start ranks? torchrun's and DeepSpeed's names, dash or underscore.
//
// The rest belongs to the configuration and is handed on in its order.

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace skein::launch {

struct LaunchFlags {
  std::optional<std::string> nproc_per_node;  // a number, auto, gpu, cpu
  std::optional<std::string> num_gpus;        // a number
};

struct SplitArguments {
  LaunchFlags flags;
  std::vector<std::string> rest;
};

// Throws UserError for a flag without its value, and for one that is known but not built yet.
SplitArguments split_launch_flags(std::span<const std::string> arguments);

}  // namespace skein::launch
