// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract between ops/layer_norm.cpp and its CUDA kernels, in raw pointers.

#include "skein/core/dtype.h"

namespace skein::ops {

constexpr int kLayerNormMostChannels = 16384;

// y = (x − mean) · inverse · weight + bias, rows of `channels` contiguous elements: a multiple of
// 8, at most kLayerNormMostChannels.
struct LayerNormForward {
  const void* x = nullptr;
  const void* delta = nullptr;  // when given: sum = x + delta is stored and normalised
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* sum = nullptr;
  void* y = nullptr;
  float* mean = nullptr;     // (rows)
  float* inverse = nullptr;  // (rows), 1 / √(variance + epsilon)
  int64_t rows = 0;
  int channels = 0;
  float epsilon = 0;
  DType type = DType::kF32;
};

struct LayerNormBackward {
  const void* x = nullptr;  // what was normalised
  const void* weight = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  const void* d_y = nullptr;
  const void* d_sum = nullptr;  // gradient of what was normalised from elsewhere, or null
  void* d_x = nullptr;
  // (layer_norm_parts(channels), 2, channels): of the weight's gradient and of the bias's, to be
  // summed over the first.
  float* parts = nullptr;
  int64_t rows = 0;
  int channels = 0;
  DType type = DType::kF32;
};

// Warps that share a row: up to 32 elements for each thread, so that a row is read once.
inline int layer_norm_warps(int channels) { return (channels + 1023) / 1024; }

// Blocks of the backward kernel: twelve warps for each multiprocessor of an H200.
inline int layer_norm_parts(int channels) {
  const int warps = layer_norm_warps(channels);
  return warps == 1 ? 132 * 3 : 132 * (warps < 12 ? 12 / warps : 1);
}

void layer_norm_on_cuda(const LayerNormForward& call);
void layer_norm_backward_on_cuda(const LayerNormBackward& call);

}  // namespace skein::ops
