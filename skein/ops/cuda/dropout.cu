// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "skein/ops/cuda/stream.h"
#include "skein/ops/dropout_kernel.h"

namespace skein::ops {
namespace {

// Arithmetic of each storage type: as the CPU reference, one rounding to the storage type.
template <typename T>
struct Wide {
  using Type = T;
};
template <>
struct Wide<__nv_bfloat16> {
  using Type = float;
};
template <>
struct Wide<__half> {
  using Type = float;
};

// One thread per group of four columns: one Philox call each.
template <typename T>
__global__ void drop(DropoutCall call, int64_t groups_per_row, int64_t num_groups) {
  using W = typename Wide<T>::Type;
  const W scale = static_cast<W>(call.scale);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       index < num_groups; index += stride) {
    const int64_t row = index / groups_per_row, group = index % groups_per_row;
    const DropoutRow place = dropout_row(call, row);
    const random::Words words =
        dropout_words(call.stream, place.document, place.head, place.position, group);
    const int64_t begin = group * kDropoutWords;
    const T* input = static_cast<const T*>(call.input) + row * call.width + begin;
    T* output = static_cast<T*>(call.output) + row * call.width + begin;
    for (int i = 0; i < kDropoutWords && begin + i < call.width; ++i) {
      const bool keep = words.word[i] >= call.threshold;
      output[i] = keep ? static_cast<T>(static_cast<W>(input[i]) * scale) : static_cast<T>(W(0));
    }
  }
}

template <typename T>
void launch(const DropoutCall& call, cudaStream_t stream) {
  constexpr int64_t kThreads = 256, kMaxBlocks = 4096;
  const int64_t groups_per_row = (call.width + kDropoutWords - 1) / kDropoutWords;
  const int64_t num_groups = call.batch * call.heads * call.tokens * groups_per_row;
  const int64_t wanted = (num_groups + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  drop<T><<<blocks, kThreads, 0, stream>>>(call, groups_per_row, num_groups);
}

}  // namespace

void dropout_on_cuda(const DropoutCall& call) {
  switch (call.type) {
    case DType::kF32:
      launch<float>(call, current_stream());
      break;
    case DType::kF64:
      launch<double>(call, current_stream());
      break;
    case DType::kBF16:
      launch<__nv_bfloat16>(call, current_stream());
      break;
    case DType::kF16:
      launch<__half>(call, current_stream());
      break;
    default:
      break;  // dropout.cpp refuses it
  }
  check_launch();
}

}  // namespace skein::ops
