// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/adamw_formula.h"
#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"

namespace skein::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements per thread and turn: one float4 of each state

template <typename T>
struct alignas(kWidth * sizeof(T)) Four {
  T values[kWidth];
};

template <typename T, typename G>
__global__ void adamw(AdamWCall call) {
  if (*call.skip != 0) return;
  const AdamWFormula<float> formula(adamw_constants(call, *call.factor, *call.step));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < call.count / kWidth; i += stride) {
    auto master = reinterpret_cast<Four<float>*>(call.master)[i];
    auto m = static_cast<Four<float>*>(call.exp_avg)[i];
    auto v = static_cast<Four<float>*>(call.exp_avg_sq)[i];
    const auto gradient = static_cast<const Four<G>*>(call.gradient)[i];
    Four<T> weights;
    for (int j = 0; j < kWidth; ++j) {
      formula.update(widen(gradient.values[j]), m.values[j], v.values[j], master.values[j]);
      weights.values[j] = narrow<T>(master.values[j]);
    }
    reinterpret_cast<Four<float>*>(call.master)[i] = master;
    static_cast<Four<float>*>(call.exp_avg)[i] = m;
    static_cast<Four<float>*>(call.exp_avg_sq)[i] = v;
    if (call.weights != nullptr) static_cast<Four<T>*>(call.weights)[i] = weights;
  }
}

}  // namespace

void adamw_on_cuda(const AdamWCall& call) {
  const unsigned blocks = blocks_for(call.count / kWidth, kThreads, 132 * 16);
  with_type(call.type, [&](auto type) {
    with_type(call.gradient_type, [&](auto gradient) {
      adamw<decltype(type), decltype(gradient)><<<blocks, kThreads, 0, current_stream()>>>(call);
    });
  });
  check_launch();
}

}  // namespace skein::ops
