// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/rope_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;

// One thread per vector of the first half and its partner in the second.
template <typename T>
__global__ void rotate(RopeCall call, int64_t num_pairs) {
  using V = Vector<T>;
  const int half = call.head_dim / 2 / V::kSize;  // vectors
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; index < num_pairs;
       index += stride) {
    const int64_t head = index / half, token = head / call.heads;
    const int column = static_cast<int>(index % half);
    const int64_t position = token % call.tokens;
    const V cosine = static_cast<const V*>(call.cos)[position * half + column];
    const V sine = static_cast<const V*>(call.sin)[position * half + column];
    const T* own = static_cast<const T*>(call.x) + token * call.x_stride;
    const V* row = reinterpret_cast<const V*>(own) + head % call.heads * half * 2 + column;
    V* out = static_cast<V*>(call.y) + head * half * 2 + column;
    V first = row[0], second = row[half];
    for (int j = 0; j < V::kSize; ++j) {
      const float a = widen(first.values[j]), b = widen(second.values[j]);
      const float c = widen(cosine.values[j]);
      const float s = call.backwards ? -widen(sine.values[j]) : widen(sine.values[j]);
      first.values[j] = narrow<T>(a * c - b * s);
      second.values[j] = narrow<T>(b * c + a * s);
    }
    out[0] = first;
    out[half] = second;
  }
}

}  // namespace

void rope_on_cuda(const RopeCall& call) {
  with_type(call.type, [&](auto type) {
    using T = decltype(type);
    const int64_t pairs = call.rows * call.heads * (call.head_dim / 2 / Vector<T>::kSize);
    rotate<T><<<blocks_for(pairs, kThreads), kThreads, 0, current_stream()>>>(call, pairs);
  });
  check_launch();
}

}  // namespace skein::ops
