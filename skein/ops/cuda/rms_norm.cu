// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/rms_norm_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;
// A block has 48 KiB of shared memory unless more is asked for. Wider rows do without.
constexpr int kMostSharedChannels = 11 * 1024;

// One block per row; the row is read twice, the second time from cache.
template <typename T>
__global__ void forward(RmsNormForward call) {
  using V = Vector<T>;
  __shared__ float shared[32];
  const int vectors = call.channels / V::kSize;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * vectors;
  const V* x = static_cast<const V*>(call.x) + base;
  const V* delta = static_cast<const V*>(call.delta);
  V* sum = static_cast<V*>(call.sum);
  float squares = 0;
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    V row = x[i];
    if (delta != nullptr) {
      const V more = delta[base + i];
      for (int j = 0; j < V::kSize; ++j) {
        row.values[j] = narrow<T>(widen(row.values[j]) + widen(more.values[j]));
      }
      sum[base + i] = row;
    }
    for (int j = 0; j < V::kSize; ++j) squares += widen(row.values[j]) * widen(row.values[j]);
  }
  const float inverse = rsqrtf(block_sum(squares, shared) / call.channels + call.epsilon);
  if (threadIdx.x == 0) call.inverse_rms[blockIdx.x] = inverse;
  const V* weight = static_cast<const V*>(call.weight);
  const V* rows = delta != nullptr ? sum + base : x;
  V* y = static_cast<V*>(call.y) + base;
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    const V row = rows[i], w = weight[i];
    V out;
    for (int j = 0; j < V::kSize; ++j) {
      out.values[j] = narrow<T>(widen(w.values[j]) * rounded<T>(widen(row.values[j]) * inverse));
    }
    y[i] = out;
  }
}

// Each block takes every kRmsNormParts-th row and keeps its part of d_weight in shared memory, or,
// of wide rows, where it belongs. A thread touches its own columns only: sums are formed in a fixed
// order.
template <typename T>
__global__ void backward(RmsNormBackward call) {
  using V = Vector<T>;
  extern __shared__ float in_shared[];  // (channels), where they fit
  __shared__ float shared[32];
  float* part = call.d_weight_parts + static_cast<int64_t>(blockIdx.x) * call.channels;
  float* d_weight = call.channels <= kMostSharedChannels ? in_shared : part;
  const int vectors = call.channels / V::kSize;
  const V* weight = static_cast<const V*>(call.weight);
  for (int c = threadIdx.x; c < call.channels; c += kThreads) d_weight[c] = 0;
  __syncthreads();
  for (int64_t row = blockIdx.x; row < call.rows; row += kRmsNormParts) {
    const V* x = static_cast<const V*>(call.x) + row * vectors;
    const V* d_y = static_cast<const V*>(call.d_y) + row * vectors;
    const V* d_sum = static_cast<const V*>(call.d_sum);
    V* d_x = static_cast<V*>(call.d_x) + row * vectors;
    const float inverse = call.inverse_rms[row];
    float dot = 0;  // of weight * d_y with the normalised row
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
      const V xs = x[i], gs = d_y[i], ws = weight[i];
      for (int j = 0; j < V::kSize; ++j) {
        dot += widen(gs.values[j]) * widen(ws.values[j]) * widen(xs.values[j]) * inverse;
      }
    }
    const float mean = block_sum(dot, shared) / call.channels;
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
      const V xs = x[i], gs = d_y[i], ws = weight[i];
      V more{}, out;
      if (d_sum != nullptr) more = d_sum[row * vectors + i];
      for (int j = 0; j < V::kSize; ++j) {
        const float normalised = widen(xs.values[j]) * inverse, g = widen(gs.values[j]);
        d_weight[i * V::kSize + j] += g * rounded<T>(normalised);
        const float d = inverse * (g * widen(ws.values[j]) - normalised * mean);
        out.values[j] = narrow<T>(d_sum != nullptr ? d + widen(more.values[j]) : d);
      }
      d_x[i] = out;
    }
  }
  if (d_weight == part) return;
  __syncthreads();
  for (int c = threadIdx.x; c < call.channels; c += kThreads) part[c] = d_weight[c];
}

}  // namespace

void rms_norm_on_cuda(const RmsNormForward& call) {
  with_type(call.type, [&](auto type) {
    forward<decltype(type)>
        <<<static_cast<unsigned>(call.rows), kThreads, 0, current_stream()>>>(call);
  });
  check_launch();
}

void rms_norm_backward_on_cuda(const RmsNormBackward& call) {
  const bool fits = call.channels <= kMostSharedChannels;
  const size_t bytes = fits ? static_cast<size_t>(call.channels) * sizeof(float) : 0;
  with_type(call.type, [&](auto type) {
    backward<decltype(type)><<<kRmsNormParts, kThreads, bytes, current_stream()>>>(call);
  });
  check_launch();
}

}  // namespace skein::ops
