// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/square_sum.cpp and its CUDA kernels, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

struct SquareSumCall {
  const void* x = nullptr;  // `count` elements, a multiple of 8, aligned to sixteen bytes
  double* parts = nullptr;  // (kSquareSumParts): one for each block
  double* sum = nullptr;    // a scalar, to which Σ x² is added
  int64_t count = 0;
  DType type = DType::kF32;
};

constexpr int kSquareSumParts = 1056;  // eight blocks for each multiprocessor of an H200

void add_square_sum_on_cuda(const SquareSumCall& call);

}  // namespace skein::ops
