// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One micro-batch, as the loader makes it and models read it.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace skein::tensor {

// B rows, T tokens.
struct Batch {
  at::Tensor tokens;     // (B, T) int64
  at::Tensor targets;    // (B, T) int64: the token that position t predicts, kIgnore where none
  at::Tensor documents;  // (B) int64: global sample id of each row; keys dropout
  int64_t num_targets = 0;
};

constexpr int64_t kIgnore = -100;

Batch to_device(const Batch& batch, at::Device device);

// What random draws of a step are keyed by. `training` off: no dropout.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
  bool training = true;
};

}  // namespace skein::tensor
