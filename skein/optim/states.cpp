// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/states.h"

#include <algorithm>

namespace skein::optim {

// AdamW is the one optimizer so far: nothing in the options chooses among several.
std::vector<StateTensor> state_tensors(const config::OptimizerConfig& /*options*/,
                                       int64_t weight_bytes) {
  const int64_t bytes = std::max<int64_t>(weight_bytes, 4);
  std::vector<StateTensor> states;
  if (weight_bytes == 2) states.push_back({"master", bytes});
  states.push_back({"exp_avg", bytes});
  states.push_back({"exp_avg_sq", bytes});
  return states;
}

int64_t state_bytes(const config::OptimizerConfig& options, int64_t weight_bytes) {
  int64_t sum = 0;
  for (const auto& state : state_tensors(options, weight_bytes)) sum += state.bytes;
  return sum;
}

}  // namespace skein::optim
