// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/normal_kernel.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;

// One thread per Philox call: four elements, of which the first and the last call keep a part.
template <typename T>
__global__ void draw(NormalCall call, int64_t first_block, int64_t num_blocks) {
  T* out = static_cast<T*>(call.out);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       index < num_blocks; index += stride) {
    const int64_t block = first_block + index;
    double four[kNormalWords];
    normal4(call.key, block, four);
    for (int i = 0; i < kNormalWords; ++i) {
      const int64_t element = block * kNormalWords + i - call.begin;
      if (element < 0 || element >= call.count) continue;
      out[element] = narrow<T>(static_cast<float>(call.deviation * four[i]));
    }
  }
}

}  // namespace

void normal_on_cuda(const NormalCall& call) {
  const int64_t first = call.begin / kNormalWords;
  const int64_t last = (call.begin + call.count + kNormalWords - 1) / kNormalWords;
  if (call.count == 0) return;
  with_type(call.type, [&](auto type) {
    draw<decltype(type)><<<blocks_for(last - first, kThreads), kThreads, 0, current_stream()>>>(
        call, first, last - first);
  });
  check_launch();
}

}  // namespace skein::ops
