// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/swiglu.cpp and its CUDA kernels, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

// Arrays of `count` contiguous elements, a multiple of 8.
struct SwigluCall {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* y = nullptr;  // silu(gate) * up
  // Backward, when d_y is given:
  const void* d_y = nullptr;
  void* d_gate = nullptr;
  void* d_up = nullptr;
  int64_t count = 0;
  DType type = DType::kF32;
};

void swiglu_on_cuda(const SwigluCall& call);
void swiglu_backward_on_cuda(const SwigluCall& call);

}  // namespace skein::ops
