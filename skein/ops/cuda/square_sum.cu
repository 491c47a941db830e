// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/square_sum_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;

// The sum over the block, right in thread 0.
__device__ double block_total(double value) {
  __shared__ double shared[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) total += shared[warp];
  return total;
}

template <typename T>
__global__ void square_parts(SquareSumCall call, int64_t vectors) {
  using V = Vector<T>;
  const V* x = static_cast<const V*>(call.x);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vectors;
       i += stride) {
    const V v = x[i];
    for (int j = 0; j < V::kSize; ++j) {
      const double wide = widen(v.values[j]);
      sum += wide * wide;
    }
  }
  const double total = block_total(sum);
  if (threadIdx.x == 0) call.parts[blockIdx.x] = total;
}

__global__ void add_parts(SquareSumCall call, int num_parts) {
  double sum = 0;
  for (int i = threadIdx.x; i < num_parts; i += kThreads) sum += call.parts[i];
  const double total = block_total(sum);
  if (threadIdx.x == 0) *call.sum += total;
}

}  // namespace

void add_square_sum_on_cuda(const SquareSumCall& call) {
  with_type(call.type, [&](auto type) {
    using T = decltype(type);
    const int64_t vectors = call.count / Vector<T>::kSize;
    const unsigned blocks = blocks_for(vectors, kThreads, kSquareSumParts);
    if (blocks == 0) return;
    square_parts<T><<<blocks, kThreads, 0, current_stream()>>>(call, vectors);
    add_parts<<<1, kThreads, 0, current_stream()>>>(call, static_cast<int>(blocks));
  });
  check_launch();
}

}  // namespace skein::ops
