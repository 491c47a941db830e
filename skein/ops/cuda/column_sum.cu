// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/column_sum_kernel.h"
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"

namespace skein::ops {
namespace {

constexpr int kRowWarps = 8;    // of a block of the first stage: each takes every eighth row
constexpr int kPartWarps = 16;  // of a block of the second stage

// Block (tile, part): a warp reads 512 bytes of a row at a time, a thread has its own columns.
template <typename T>
__global__ void __launch_bounds__(32 * kRowWarps) sum_rows(ColumnSumCall call) {
  using V = Vector<T>;
  constexpr int kTile = 32 * V::kSize;
  __shared__ float shared[kRowWarps][kTile];
  const int64_t vectors = call.columns / V::kSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;  // in vectors
  const int64_t begin = call.rows * blockIdx.y / gridDim.y;
  const int64_t end = call.rows * (blockIdx.y + 1) / gridDim.y;
  float sum[V::kSize] = {};
  if (column < vectors) {
    const V* x = static_cast<const V*>(call.x) + column;
#pragma unroll 8
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowWarps) {
      const V v = x[row * vectors];
      for (int j = 0; j < V::kSize; ++j) sum[j] += widen(v.values[j]);
    }
  }
  for (int j = 0; j < V::kSize; ++j) shared[threadIdx.y][threadIdx.x * V::kSize + j] = sum[j];
  __syncthreads();
  float* part = call.parts + blockIdx.y * call.columns + static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t left = call.columns - static_cast<int64_t>(blockIdx.x) * kTile;
  const int thread = threadIdx.y * 32 + threadIdx.x;
  if (thread >= kTile || thread >= left) return;
  float total = 0;
  for (int warp = 0; warp < kRowWarps; ++warp) total += shared[warp][thread];
  part[thread] = total;
}

// A block has 32 columns; its warps take every kPartWarps-th part.
template <typename T>
__global__ void __launch_bounds__(32 * kPartWarps) sum_parts(PartSumCall call) {
  __shared__ float shared[kPartWarps][32];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < call.columns) {
#pragma unroll 8
    for (int part = threadIdx.y; part < call.num_parts; part += kPartWarps) {
      sum += call.parts[part * call.columns + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= call.columns) return;
  float total = 0;
  for (int warp = 0; warp < kPartWarps; ++warp) total += shared[warp][threadIdx.x];
  static_cast<T*>(call.sum)[column] = narrow<T>(total);
}

}  // namespace

void column_sum_on_cuda(const ColumnSumCall& call) {
  const int parts = column_sum_parts(call.rows, call.columns);
  with_type(call.type, [&](auto type) {
    using T = decltype(type);
    const unsigned tiles = blocks_for(call.columns, 32 * Vector<T>::kSize);
    const dim3 grid(tiles, static_cast<unsigned>(parts)), block(32, kRowWarps);
    sum_rows<T><<<grid, block, 0, current_stream()>>>(call);
  });
  check_launch();
  part_sum_on_cuda({call.parts, call.sum, parts, call.columns, call.type});
}

void part_sum_on_cuda(const PartSumCall& call) {
  with_type(call.type, [&](auto type) {
    const dim3 block(32, kPartWarps);
    sum_parts<decltype(type)><<<blocks_for(call.columns, 32), block, 0, current_stream()>>>(call);
  });
  check_launch();
}

}  // namespace skein::ops
