// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// AdamW on flat ranges.
//
// Sees no parameter, only ranges of elements that are updated alike. Under 16-bit weights it keeps
// an fp32 master of each range; under fp32 and fp64 the weights are the master.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/tensor/flat_memory.h"
#include "skein/tensor/shard_layout.h"

namespace skein::optim {

// The elements of one flat segment that this rank updates.
struct OwnedRange {
  at::Tensor parameters;  // working weights
  at::Tensor gradients;   // of the same elements, in the weights' dtype or fp32
  // Together all of them, in their order; boundaries are multiples of 128.
  std::vector<tensor::UpdateGroup> groups;
};

struct AdamState {
  at::Tensor master;  // aliases the weights where they are not 16-bit
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

// What an optimizer keeps of one range, one element per element: optim::state_tensors(), allocated.
struct NamedState {
  std::string name;
  at::Tensor data;
};
using RangeStates = std::vector<NamedState>;

class AdamW {
 public:
  AdamW(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
        tensor::FlatMemory& memory);

  // The gradients count `factor` (float64) times and stay as they are; `skip` (float32) leaves
  // everything as it is when it is 1. Both are scalars on the ranges' device, so that no step waits
  // for the host.
  struct Decision {
    at::Tensor factor, skip;
  };
  // On a CPU by at::get_num_threads() threads; the same bits for any number of them.
  void step(double learning_rate, const Decision& decision);

  const config::OptimizerConfig& options() const { return options_; }
  // One list per range.
  const std::vector<RangeStates>& states() const { return named_states_; }
  // Call when the weights were set from outside.
  void refresh_masters();

  // Updates made so far, skipped ones not counted: the bias correction's exponent.
  int64_t num_updates() const;
  void set_num_updates(int64_t count);

 private:
  // One group of a range.
  struct Part {
    at::Tensor parameters, gradients;
    AdamState state;
    double learning_rate, weight_decay;
  };
  std::vector<Part> parts(double learning_rate) const;
  void step_on_cpu(const std::vector<Part>& parts, const Decision& decision);
  void step_on_cuda(const std::vector<Part>& parts, const Decision& decision);
  void update_on_cuda(const Part& part, const Decision& decision);
  void update_by_torch(const Part& part, const Decision& decision);

  std::vector<OwnedRange> ranges_;
  config::OptimizerConfig options_;
  std::vector<tensor::FlatBuffer> buffers_;
  std::vector<AdamState> states_;
  std::vector<RangeStates> named_states_;
  at::Tensor num_updates_;  // float32 scalar on the device
};

}  // namespace skein::optim
