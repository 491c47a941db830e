// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/linear_cross_entropy.cpp and its CUDA kernel, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

// For each row of logits (rows, row_stride), of which the first `vocabulary` columns count:
// log_prob of its target, and in the logits' place its gradient, zero in the columns beyond. Rows
// whose target is negative give 0 and a zero gradient. With smoothing, log_prob is (1 - smoothing)
// of the target's and `smoothing` of the mean over the columns that count. The gradient is that of
// the logits times `sharpness`.
struct CrossEntropyCall {
  void* logits = nullptr;
  const int64_t* targets = nullptr;
  float* log_prob = nullptr;  // (rows)
  int64_t rows = 0;
  int64_t vocabulary = 0;
  int64_t row_stride = 0;
  float smoothing = 0;
  float gain = 1;         // of the gradient, before it is rounded
  float sharpness = 1;    // logits are multiplied by it, in fp32
  bool gradient = false;  // else the logits are left as they are
  DType type = DType::kF32;
};

void cross_entropy_on_cuda(const CrossEntropyCall& call);

}  // namespace skein::ops
