// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/linear_cross_entropy.cpp and its CUDA kernel, in raw pointers.

#include "skein/ops/element_type.h"

namespace skein::ops {

// For each row of logits (rows, vocabulary): log_prob of its target, and in the logits' place the
// gradient of scale * log_prob. Rows whose target is negative give 0 and a zero gradient.
struct CrossEntropyCall {
  void* logits = nullptr;
  const int64_t* targets = nullptr;
  const float* scale = nullptr;  // (rows); null: the logits are left as they are
  float* log_prob = nullptr;     // (rows)
  int64_t rows = 0;
  int64_t vocabulary = 0;
  ElementType type = ElementType::kFloat;
};

void cross_entropy_on_cuda(const CrossEntropyCall& call);

}  // namespace skein::ops
