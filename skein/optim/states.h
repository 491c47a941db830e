// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors does the optimizer keep beside each weight, in which type, and where?
//
// The one list of them. Flat memory, checkpoints, and the plans of memory and disk follow it.
// Without LibTorch, for plans.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/core/medium.h"

namespace skein::optim {

// One element per element of the weights.
struct StateTensor {
  std::string name;  // stored on disk: tensors of a checkpoint are PARAMETER.NAME, in `dtype`
  DType dtype = DType::kF32;
  Medium medium = Medium::kDevice;  // while a run trains; reaches no file
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
inline MediumBytes state_bytes(const config::OptimizerConfig& options, DType weights) {
  MediumBytes sum;
  for (const auto& state : state_tensors(options, weights)) {
    sum[state.medium] += static_cast<int64_t>(dtype_bytes(state.dtype));
  }
  return sum;
}

}  // namespace skein::optim
