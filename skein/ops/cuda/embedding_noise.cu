// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "skein/ops/cuda/stream.h"
#include "skein/ops/embedding_noise_kernel.h"

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
__global__ void add(EmbeddingNoiseCall call, int64_t groups_per_row, int64_t num_groups) {
  using W = typename Wide<T>::Type;
  const DropoutCall& place = call.place;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       index < num_groups; index += stride) {
    const int64_t row = index / groups_per_row, group = index % groups_per_row;
    const DropoutRow key = dropout_row(place, row);
    const W magnitude =
        static_cast<W>(call.magnitude) / sqrt(static_cast<W>(document_length(call, row)));
    const random::Words words =
        dropout_words(place.stream, key.document, key.head, key.position, group);
    const int64_t begin = group * kDropoutWords;
    const T* input = static_cast<const T*>(place.input) + row * place.width + begin;
    T* output = static_cast<T*>(place.output) + row * place.width + begin;
    for (int i = 0; i < kDropoutWords && begin + i < place.width; ++i) {
      const W noise = magnitude * static_cast<W>(to_signed_unit(words.word[i]));
      output[i] = static_cast<T>(static_cast<W>(input[i]) + noise);
    }
  }
}

template <typename T>
void launch(const EmbeddingNoiseCall& call) {
  constexpr int64_t kThreads = 256, kMaxBlocks = 4096;
  const int64_t groups_per_row = (call.place.width + kDropoutWords - 1) / kDropoutWords;
  const int64_t num_groups = call.place.batch * call.place.tokens * groups_per_row;
  const int64_t wanted = (num_groups + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  add<T><<<blocks, kThreads, 0, current_stream()>>>(call, groups_per_row, num_groups);
}

}  // namespace

void embedding_noise_on_cuda(const EmbeddingNoiseCall& call) {
  switch (call.place.type) {
    case DType::kF32:
      launch<float>(call);
      break;
    case DType::kF64:
      launch<double>(call);
      break;
    case DType::kBF16:
      launch<__nv_bfloat16>(call);
      break;
    case DType::kF16:
      launch<__half>(call);
      break;
    default:
      break;  // embedding_noise.cpp refuses it
  }
  check_launch();
}

}  // namespace skein::ops
