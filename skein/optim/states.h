// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors does the optimizer keep beside each weight?
//
// The one list of them. Flat memory, checkpoints, and the plans of memory and disk follow it.
// Without LibTorch, for plans.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::optim {

struct StateTensor {
  std::string name;   // stored on disk: tensors of a checkpoint are PARAMETER.NAME
  int64_t bytes = 4;  // per element: 4 or 8, always floating
};

// Of weights that have so many bytes per element (2, 4 or 8), in the order of allocation.
std::vector<StateTensor> state_tensors(const config::OptimizerConfig& options,
                                       int64_t weight_bytes);
// All of them together, per element.
int64_t state_bytes(const config::OptimizerConfig& options, int64_t weight_bytes);

}  // namespace skein::optim
