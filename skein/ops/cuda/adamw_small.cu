// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// AdamW with states in fewer bytes. Compiled without contraction (CMakeLists.txt): an element goes
// through the same roundings as on a CPU.
#include "skein/ops/adamw_formula.h"
#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/moment_code.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kWidth = 4;  // elements of a thread: a warp has a block of moments
static_assert(32 * kWidth == kMomentBlock);

__constant__ MomentCode kSigned = make_moment_code(true), kUnsigned = make_moment_code(false);

template <typename T>
struct alignas(kWidth * sizeof(T)) Four {
  T values[kWidth];
};

__device__ AdamWFormula<float> formula_of(const AdamWCall& call) {
  return AdamWFormula<float>(adamw_constants(call, *call.factor, *call.step));
}

__device__ unsigned warp_max(unsigned value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(~0U, value, offset));
  }
  return value;
}

// A block's moments, spread over a warp; returns its scale.
__device__ float encode(const float (&values)[kWidth], const MomentCode& code,
                        Four<uint8_t>& bytes) {
  unsigned largest = 0;
  for (const float value : values) largest = max(largest, __float_as_uint(value) & 0x7FFFFFFF);
  largest = warp_max(largest);
  const float scale = __uint_as_float(largest);
  const float divisor = largest == 0 ? 1 : scale;
  for (int j = 0; j < kWidth; ++j) bytes.values[j] = code.nearest(values[j] / divisor);
  return scale;
}

// A warp's lanes read other entries of these tables, which constant memory would serve one by one.
struct Tables {
  float first[256], second[256];
};
__device__ void fill(Tables& tables) {
  for (int i = threadIdx.x; i < 256; i += kThreads) {
    tables.first[i] = kSigned.values[i];
    tables.second[i] = kUnsigned.values[i];
  }
  __syncthreads();
}

template <typename T, typename G>
__global__ void adamw_8bit(AdamWCall call) {
  __shared__ Tables tables;
  if (*call.skip != 0) return;
  fill(tables);
  const auto formula = formula_of(call);
  const int lane = threadIdx.x % 32;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       block < call.count / kMomentBlock; block += stride) {
    const int64_t i = block * 32 + lane;
    auto master = reinterpret_cast<Four<float>*>(call.master)[i];
    auto bytes1 = static_cast<Four<uint8_t>*>(call.exp_avg)[i];
    auto bytes2 = static_cast<Four<uint8_t>*>(call.exp_avg_sq)[i];
    const auto gradient = static_cast<const Four<G>*>(call.gradient)[i];
    const float scale1 = call.exp_avg_scale[block], scale2 = call.exp_avg_sq_scale[block];
    float m[kWidth], v[kWidth];
    Four<T> weights;
    for (int j = 0; j < kWidth; ++j) {
      m[j] = tables.first[bytes1.values[j]] * scale1;
      v[j] = tables.second[bytes2.values[j]] * scale2;
      formula.update(widen(gradient.values[j]), m[j], v[j], master.values[j]);
      weights.values[j] = narrow<T>(master.values[j]);
    }
    const float new_scale1 = encode(m, kSigned, bytes1), new_scale2 = encode(v, kUnsigned, bytes2);
    reinterpret_cast<Four<float>*>(call.master)[i] = master;
    static_cast<Four<uint8_t>*>(call.exp_avg)[i] = bytes1;
    static_cast<Four<uint8_t>*>(call.exp_avg_sq)[i] = bytes2;
    if (call.weights != nullptr) static_cast<Four<T>*>(call.weights)[i] = weights;
    if (lane != 0) continue;
    call.exp_avg_scale[block] = new_scale1;
    call.exp_avg_sq_scale[block] = new_scale2;
  }
}

}  // namespace

void adamw_8bit_on_cuda(const AdamWCall& call) {
  const unsigned blocks = blocks_for(call.count / kMomentBlock, kWarps, 132 * 16);
  if (blocks == 0) return;
  with_type(call.type, [&](auto type) {
    with_type(call.gradient_type, [&](auto gradient) {
      adamw_8bit<decltype(type), decltype(gradient)>
          <<<blocks, kThreads, 0, current_stream()>>>(call);
    });
  });
  check_launch();
}

}  // namespace skein::ops
