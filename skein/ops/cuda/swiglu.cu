// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/swiglu_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;

__device__ inline float sigmoid(float x) { return 1 / (1 + __expf(-x)); }

template <typename T>
__global__ void forward(SwigluCall call, int64_t vectors) {
  using V = Vector<T>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vectors;
       i += stride) {
    const V gate = static_cast<const V*>(call.gate)[i], up = static_cast<const V*>(call.up)[i];
    V y;
    for (int j = 0; j < V::kSize; ++j) {
      const float g = widen(gate.values[j]);
      y.values[j] = narrow<T>(rounded<T>(g * sigmoid(g)) * widen(up.values[j]));
    }
    static_cast<V*>(call.y)[i] = y;
  }
}

template <typename T>
__global__ void backward(SwigluCall call, int64_t vectors) {
  using V = Vector<T>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vectors;
       i += stride) {
    const V gate = static_cast<const V*>(call.gate)[i], up = static_cast<const V*>(call.up)[i];
    const V d_y = static_cast<const V*>(call.d_y)[i];
    V d_gate, d_up;
    for (int j = 0; j < V::kSize; ++j) {
      const float g = widen(gate.values[j]), d = widen(d_y.values[j]), s = sigmoid(g);
      d_up.values[j] = narrow<T>(d * rounded<T>(g * s));
      d_gate.values[j] = narrow<T>(d * widen(up.values[j]) * s * (1 + g * (1 - s)));
    }
    static_cast<V*>(call.d_gate)[i] = d_gate;
    static_cast<V*>(call.d_up)[i] = d_up;
  }
}

}  // namespace

void swiglu_on_cuda(const SwigluCall& call) {
  with_type(call.type, [&](auto type) {
    using T = decltype(type);
    const int64_t vectors = call.count / Vector<T>::kSize;
    forward<T><<<blocks_for(vectors, kThreads), kThreads, 0, current_stream()>>>(call, vectors);
  });
  check_launch();
}

void swiglu_backward_on_cuda(const SwigluCall& call) {
  with_type(call.type, [&](auto type) {
    using T = decltype(type);
    const int64_t vectors = call.count / Vector<T>::kSize;
    backward<T><<<blocks_for(vectors, kThreads), kThreads, 0, current_stream()>>>(call, vectors);
  });
  check_launch();
}

}  // namespace skein::ops
