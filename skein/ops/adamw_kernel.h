// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between optim/adamw.cpp and its CUDA kernels, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

// One pass over everything: reads the gradient, updates master and moments, writes the weights.
// All arrays have `count` elements, a multiple of 128.
struct AdamWCall {
  void* weights = nullptr;  // in `type`; null when the master is the weights
  // Null: there is none, and bf16 weights and moments (unless these have scales) are rounded at
  // random (ops/random_rounding.h).
  float* master = nullptr;
  void* exp_avg = nullptr;  // fp32, or bf16
  void* exp_avg_sq = nullptr;
  // Where they are given, moments are bytes of ops/moment_code.h, and these the scales of their
  // blocks.
  float* exp_avg_scale = nullptr;
  float* exp_avg_sq_scale = nullptr;
  const void* gradient = nullptr;  // in `gradient_type`
  const double* factor = nullptr;  // on the device: multiplies the gradient (clipping)
  const float* skip = nullptr;     // on the device: 1 leaves everything as it is
  const float* step = nullptr;     // on the device: number of this update, from 1
  int64_t count = 0;
  DType type = DType::kF32;
  DType gradient_type = DType::kF32;
  // Without a master: what is drawn, together with the step, and the place of the first element, a
  // multiple of 128.
  uint64_t rounding_key = 0;
  int64_t first_element = 0;
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
};

void adamw_on_cuda(const AdamWCall& call);
// With moments in 8 bits, and with bf16 alone. The same bits as ops/cpu/adamw.h.
void adamw_8bit_on_cuda(const AdamWCall& call);
void adamw_bfloat16_on_cuda(const AdamWCall& call);

}  // namespace skein::ops
