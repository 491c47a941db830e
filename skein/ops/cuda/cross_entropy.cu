// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <cfloat>

#include "skein/ops/cross_entropy_kernel.h"
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"

namespace skein::ops {
namespace {

constexpr int kThreads = 512;

// Maximum and sum of exponentials relative to it, of what a thread has seen.
struct Softmax {
  float max = -FLT_MAX;
  float sum = 0;
  __device__ void add(float value) {
    if (value > max) {
      sum = sum * __expf(max - value) + 1;
      max = value;
    } else {
      sum += __expf(value - max);
    }
  }
  __device__ void merge(Softmax other) {
    const float top = fmaxf(max, other.max);
    sum = sum * __expf(max - top) + other.sum * __expf(other.max - top);
    max = top;
  }
};

__device__ Softmax merge_block(Softmax own, Softmax* shared) {
  for (int offset = 16; offset > 0; offset /= 2) {
    own.merge({__shfl_xor_sync(~0U, own.max, offset), __shfl_xor_sync(~0U, own.sum, offset)});
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  Softmax all = shared[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) all.merge(shared[warp]);
  return all;
}

__device__ float sum_block(float own, float* shared) {
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_xor_sync(~0U, own, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  float all = shared[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) all += shared[warp];
  return all;
}

// Calls visit(column, value) for this thread's columns: vectors where rows are aligned to them.
template <typename T, typename Visit>
__device__ void for_columns(T* row, int64_t count, bool vectors, Visit visit) {
  using V = Vector<T>;
  if (!vectors) {
    for (int64_t i = threadIdx.x; i < count; i += kThreads) row[i] = visit(i, row[i]);
    return;
  }
  for (int64_t i = threadIdx.x; i < count / V::kSize; i += kThreads) {
    V v = reinterpret_cast<V*>(row)[i];
    for (int j = 0; j < V::kSize; ++j) v.values[j] = visit(i * V::kSize + j, v.values[j]);
    reinterpret_cast<V*>(row)[i] = v;
  }
}

template <typename T, typename Visit>
__device__ void read_columns(const T* row, int64_t count, bool vectors, Visit visit) {
  using V = Vector<T>;
  if (!vectors) {
    for (int64_t i = threadIdx.x; i < count; i += kThreads) visit(row[i]);
    return;
  }
  const int64_t whole = count / V::kSize;
  for (int64_t i = threadIdx.x; i < whole; i += kThreads) {
    const V v = reinterpret_cast<const V*>(row)[i];
    for (int j = 0; j < V::kSize; ++j) visit(v.values[j]);
  }
  // The last columns of a vocabulary that is no multiple of a vector, before its padding.
  const int64_t i = whole * V::kSize + threadIdx.x;
  if (i < count) visit(row[i]);
}

// One block per row; the second pass finds the row in the L2 cache. Without smoothing nothing is
// spent on it.
template <typename T, bool kSmooth>
__global__ void cross_entropy(CrossEntropyCall call) {
  __shared__ Softmax shared[kThreads / 32];
  __shared__ float sums[kThreads / 32];
  const int64_t count = call.vocabulary, target = call.targets[blockIdx.x];
  T* row = static_cast<T*>(call.logits) + static_cast<int64_t>(blockIdx.x) * call.row_stride;
  const bool vectors = call.row_stride % Vector<T>::kSize == 0;
  if (target < 0) {
    if (threadIdx.x == 0) call.log_prob[blockIdx.x] = 0;
    if (call.gradient) {
      for_columns(row, call.row_stride, vectors, [](int64_t, T) { return narrow<T>(0); });
    }
    return;
  }
  const auto logit = [sharpness = call.sharpness](T value) { return widen(value) * sharpness; };
  const float target_logit = logit(row[target]);
  Softmax own;
  float own_sum = 0;
  read_columns(row, count, vectors, [&](T value) {
    own.add(logit(value));
    if (kSmooth) own_sum += logit(value);
  });
  const Softmax all = merge_block(own, shared);  // its barrier also ends the reads of row[target]
  const float log_sum = all.max + logf(all.sum);
  float value = target_logit, at_target = 1, everywhere = 0;
  if (kSmooth) {
    everywhere = call.smoothing / static_cast<float>(count);
    at_target = 1 - call.smoothing + everywhere;
    value = (1 - call.smoothing) * target_logit + everywhere * sum_block(own_sum, sums);
  }
  if (threadIdx.x == 0) call.log_prob[blockIdx.x] = value - log_sum;
  if (!call.gradient) return;
  for_columns(row, call.row_stride, vectors, [&](int64_t column, T value) {
    if (column >= count) return narrow<T>(0);
    const float probability = __expf(logit(value) - log_sum);
    return narrow<T>(((column == target ? at_target : everywhere) - probability) * call.gain);
  });
}

}  // namespace

void cross_entropy_on_cuda(const CrossEntropyCall& call) {
  with_type(call.type, [&](auto type) {
    using T = decltype(type);
    const auto kernel = call.smoothing > 0 ? cross_entropy<T, true> : cross_entropy<T, false>;
    kernel<<<static_cast<unsigned>(call.rows), kThreads, 0, current_stream()>>>(call);
  });
  check_launch();
}

}  // namespace skein::ops
