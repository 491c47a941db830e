// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/nf4_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kSize = 8;            // elements of a thread's turn: four bytes of codes, one scale
constexpr int kTurnsPerThread = 8;  // so that the tables, read once a block, cost nothing

__device__ const Nf4Values kValues = nf4_values();

template <typename T>
struct alignas(16) Eight {
  T values[kSize];
};

// As the CPU adds and multiplies: each rounded by itself.
__device__ inline float scale_of(const DequantiseCall& call, const float* of_scale, int64_t block) {
  if (call.mean == nullptr) return static_cast<const float*>(call.scales)[block];
  const float share = of_scale[static_cast<const uint8_t*>(call.scales)[block]];
  return __fadd_rn(__fmul_rn(share, call.outer[block / Nf4Layout::kScaleBlock]), *call.mean);
}

template <typename T>
__global__ void dequantise(DequantiseCall call) {
  __shared__ Nf4Values shared;
  for (int i = threadIdx.x; i < 256; i += kThreads) {
    shared.of_scale[i] = kValues.of_scale[i];
    if (i < 16) shared.of_code[i] = kValues.of_code[i];
  }
  __syncthreads();
  const int64_t turns = (call.numel + kSize - 1) / kSize;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t turn = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; turn < turns;
       turn += stride) {
    const int64_t begin = turn * kSize;
    const float scale = scale_of(call, shared.of_scale, begin / Nf4Layout::kBlock);
    const uint32_t codes = static_cast<const uint32_t*>(call.codes)[turn];
    Eight<T> eight;
    for (int i = 0; i < kSize; ++i) {
      const uint32_t pair = codes >> (8 * (i / 2));  // the first byte is the lowest
      const uint32_t code = (i % 2 == 0 ? pair >> 4 : pair) & 15;
      eight.values[i] = narrow<T>(shared.of_code[code] * scale);
    }
    T* out = static_cast<T*>(call.out) + begin;
    if (begin + kSize <= call.numel) {
      *reinterpret_cast<Eight<T>*>(out) = eight;
    } else {
      for (int64_t i = 0; begin + i < call.numel; ++i) out[i] = eight.values[i];
    }
  }
}

}  // namespace

void dequantise_on_cuda(const DequantiseCall& call) {
  const int64_t turns = (call.numel + kSize - 1) / kSize;
  const auto blocks = blocks_for(turns, kThreads * kTurnsPerThread);
  with_type(call.type, [&](auto type) {
    dequantise<decltype(type)><<<blocks, kThreads, 0, current_stream()>>>(call);
  });
  check_launch();
}

}  // namespace skein::ops
