// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the kernels of this folder share: sixteen-byte loads, widening, sums over a block.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "skein/core/dtype.h"

namespace skein::ops {

// Sixteen bytes of T: the widest load a thread can make.
template <typename T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

template <typename T>
__device__ inline float widen(T value) {
  return static_cast<float>(value);
}
template <typename T>
__device__ inline T narrow(float value) {
  return static_cast<T>(value);
}
// As if stored and read again: where Hugging Face's formulas round, ours do.
template <typename T>
__device__ inline float rounded(float value) {
  return widen(narrow<T>(value));
}

__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
  return value;
}

// The sum over all threads of the block, in every thread. `shared` holds 32 floats.
__device__ inline float block_sum(float value, float* shared) {
  value = warp_sum(value);
  __syncthreads();  // `shared` may still be read from an earlier sum
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  const int warps = blockDim.x / 32;
  return warp_sum(threadIdx.x % 32 < warps ? shared[threadIdx.x % 32] : 0.0F);
}

// Calls `launch` with a value of the element type: fp32, bf16 or fp16 (fused.h checks).
template <typename Launch>
void with_type(DType type, Launch launch) {
  switch (type) {
    case DType::kF32:
      return launch(float{});
    case DType::kBF16:
      return launch(__nv_bfloat16{});
    case DType::kF16:
      return launch(__half{});
    default:
      return;
  }
}

inline unsigned blocks_for(int64_t work, int64_t per_block, int64_t most = 1 << 16) {
  const int64_t wanted = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(wanted < most ? wanted : most);
}

}  // namespace skein::ops
