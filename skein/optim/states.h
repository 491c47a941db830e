// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors does the optimizer keep beside each weight, and in which type?
//
// The one list of them. Flat memory, checkpoints, and the plans of memory and disk follow it. Where
// they lie while a run trains is offload.h's. Without LibTorch, for plans.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"

namespace skein::optim {

// One element per element of the weights.
struct StateTensor {
  std::string name;  // stored on disk: tensors of a checkpoint are PARAMETER.NAME, in `dtype`
  DType dtype = DType::kF32;
};

// Of weights of this type (bf16, fp16, fp32 or fp64), in the order of allocation. AdamW is the one
// optimizer so far: nothing in the options chooses among several.
inline std::vector<StateTensor> state_tensors(const config::OptimizerConfig& /*options*/,
                                              DType weights) {
  const auto dtype = weights == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<StateTensor> states;
  if (dtype_bytes(weights) == 2) states.push_back({"master", dtype});
  states.push_back({"exp_avg", dtype});
  states.push_back({"exp_avg_sq", dtype});
  return states;
}

// All of them together, per element.
inline int64_t state_bytes(const config::OptimizerConfig& options, DType weights) {
  int64_t sum = 0;
  for (const auto& state : state_tensors(options, weights)) {
    sum += static_cast<int64_t>(dtype_bytes(state.dtype));
  }
  return sum;
}

}  // namespace skein::optim
