// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/rms_norm.cpp and its CUDA kernels, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

// y = weight * x / rms(x), rows of `channels` contiguous elements (a multiple of 8).
struct RmsNormForward {
  const void* x = nullptr;
  const void* delta = nullptr;  // when given: sum = x + delta is stored and normalised
  const void* weight = nullptr;
  void* sum = nullptr;
  void* y = nullptr;
  float* inverse_rms = nullptr;  // (rows)
  int64_t rows = 0;
  int channels = 0;
  float epsilon = 0;
  DType type = DType::kF32;
};

struct RmsNormBackward {
  const void* x = nullptr;  // what was normalised
  const void* weight = nullptr;
  const float* inverse_rms = nullptr;
  const void* d_y = nullptr;
  const void* d_sum = nullptr;  // gradient of the stored sum, or null
  void* d_x = nullptr;
  float* d_weight_parts = nullptr;  // (kRmsNormParts, channels): to be summed over the first
  int64_t rows = 0;
  int channels = 0;
  DType type = DType::kF32;
};

constexpr int kRmsNormParts = 264;  // two blocks for each multiprocessor of an H200

void rms_norm_on_cuda(const RmsNormForward& call);
void rms_norm_backward_on_cuda(const RmsNormBackward& call);

}  // namespace skein::ops
