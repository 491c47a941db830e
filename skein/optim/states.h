// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors does the optimizer keep beside each weight?
//
// The one list of them. Flat memory, checkpoints, and the plans of memory and disk follow it.
// Without LibTorch, for plans.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::optim {

struct StateTensor {
  std::string name;   // stored on disk: tensors of a checkpoint are PARAMETER.NAME
  int64_t bytes = 4;  // per element: 4 or 8, always floating
};

// Of weights that have so many bytes per element (2, 4 or 8), in the order of allocation. AdamW is
// the one optimizer so far: nothing in the options chooses among several.
inline std::vector<StateTensor> state_tensors(const config::OptimizerConfig& /*options*/,
                                              int64_t weight_bytes) {
  const int64_t bytes = std::max<int64_t>(weight_bytes, 4);
  std::vector<StateTensor> states;
  if (weight_bytes == 2) states.push_back({"master", bytes});
  states.push_back({"exp_avg", bytes});
  states.push_back({"exp_avg_sq", bytes});
  return states;
}

// All of them together, per element.
inline int64_t state_bytes(const config::OptimizerConfig& options, int64_t weight_bytes) {
  int64_t sum = 0;
  for (const auto& state : state_tensors(options, weight_bytes)) sum += state.bytes;
  return sum;
}

}  // namespace skein::optim
