// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/rope.cpp and its CUDA kernel, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

// Rotates (rows, heads, head_dim); row r has position r % tokens. head_dim is a multiple
// of 16 (two vectors of bf16).
struct RopeCall {
  const void* x = nullptr;
  int64_t x_stride = 0;  // elements from row to row; those of y lie behind each other
  void* y = nullptr;
  const void* cos = nullptr;  // (tokens, head_dim / 2), in x's type
  const void* sin = nullptr;
  int64_t rows = 0;
  int64_t tokens = 0;
  int heads = 0;
  int head_dim = 0;
  bool backwards = false;  // by the negative angle: the gradient
  DType type = DType::kF32;
};

void rope_on_cuda(const RopeCall& call);

}  // namespace skein::ops
