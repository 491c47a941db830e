// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tensors does the optimizer keep beside each weight, and in which type?
//
// The one list of them. Flat memory, checkpoints, and the plans of memory and disk follow it. Where
// they lie while a run trains is offload.h's. Without LibTorch, for plans.

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/dtype.h"

namespace skein::optim {

// Elements that may share an entry. Parameters, shards and groups begin at multiples of it in flat
// memory (tensor/shard_layout.h), so that what is shared never has two owners.
constexpr int64_t kStateBlock = 128;

struct StateTensor {
  std::string name;  // stored on disk: tensors of a checkpoint are PARAMETER.NAME, in `dtype`
  DType dtype = DType::kF32;
  int64_t block = 1;  // elements of the weights per entry: 1 or kStateBlock
};

// Of weights of this type (bf16, fp16, fp32 or fp64), in the order of allocation.
inline std::vector<StateTensor> state_tensors(const config::OptimizerConfig& options,
                                              DType weights) {
  const bool pure = options.pure_bf16 && weights == DType::kBF16;
  const auto dtype = pure || weights == DType::kF64 ? weights : DType::kF32;
  std::vector<StateTensor> states;
  if (dtype_bytes(weights) == 2 && !pure) states.push_back({"master", dtype});
  const bool narrow = options.optim == config::OptimizerKind::kAdamW8bit;
  states.push_back({"exp_avg", narrow ? DType::kU8 : dtype});
  states.push_back({"exp_avg_sq", narrow ? DType::kU8 : dtype});
  if (!narrow) return states;
  states.push_back({"exp_avg_scale", DType::kF32, kStateBlock});
  states.push_back({"exp_avg_sq_scale", DType::kF32, kStateBlock});
  return states;
}

// In a checkpoint: the parameter's, or one entry per block of its elements, of which the last may
// be short.
inline std::vector<uint64_t> stored_shape(const StateTensor& state,
                                          const std::vector<int64_t>& parameter) {
  if (state.block == 1) return {parameter.begin(), parameter.end()};
  const auto numel =
      std::accumulate(parameter.begin(), parameter.end(), int64_t{1}, std::multiplies<>());
  return {static_cast<uint64_t>((numel + state.block - 1) / state.block)};
}

// All of them together, of a multiple of kStateBlock elements.
inline int64_t state_bytes(const config::OptimizerConfig& options, DType weights,
                           int64_t elements) {
  int64_t sum = 0;
  for (const auto& state : state_tensors(options, weights)) {
    sum += elements / state.block * static_cast<int64_t>(dtype_bytes(state.dtype));
  }
  return sum;
}

}  // namespace skein::optim
