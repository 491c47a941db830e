// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One micro-batch, as models read it.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "skein/tensor/host_batch.h"

namespace skein::tensor {

// B rows, T tokens.
struct Batch {
  at::Tensor tokens;     // (B, T) int64
  at::Tensor targets;    // (B, T) int64: the token that position t predicts, kIgnore where none
  at::Tensor documents;  // (B) int64: tells rows apart over all epochs; keys dropout
  int64_t num_targets = 0;
};

Batch to_device(const Batch& batch, at::Device device);
Batch to_device(const HostBatch& batch, at::Device device);

// What random draws of a step are keyed by. `training` off: no dropout.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
  bool training = true;
};

}  // namespace skein::tensor
