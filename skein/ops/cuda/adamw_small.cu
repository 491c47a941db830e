// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// AdamW with states in fewer bytes. Compiled without contraction (CMakeLists.txt): an element goes
// through the same roundings as on a CPU.
#include <type_traits>

#include "skein/ops/adamw_formula.h"
#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cuda/stream.h"
#include "skein/ops/cuda/vector.cuh"
#include "skein/ops/moment_code.h"
#include "skein/ops/random_rounding.h"

namespace skein::ops {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kWidth = 4;  // elements of a thread: a warp has a block
static_assert(32 * kWidth == kMomentBlock && kMomentBlock == kRoundingBlock);

__constant__ MomentCode kSigned = make_moment_code(true), kUnsigned = make_moment_code(false);

// Two neighbours, and the two that lie half a block behind them: as rounding bits are drawn.
template <typename T>
struct alignas(2 * sizeof(T)) Two {
  T values[2];
};
template <typename T>
struct Four {
  Two<T> halves[2];

  __device__ T& operator[](int j) { return halves[j / 2].values[j % 2]; }
};
constexpr int kHalf = kMomentBlock / 4;  // in Two<T>

// A thread's elements of a block.
template <typename T>
__device__ Four<T> load(const void* array, int64_t block) {
  const auto* pairs = static_cast<const Two<T>*>(array) + block * 2 * kHalf + threadIdx.x % 32;
  return {{pairs[0], pairs[kHalf]}};
}
template <typename T>
__device__ void store(void* array, int64_t block, const Four<T>& four) {
  auto* pairs = static_cast<Two<T>*>(array) + block * 2 * kHalf + threadIdx.x % 32;
  pairs[0] = four.halves[0];
  pairs[kHalf] = four.halves[1];
}

// What a thread's elements of a block are rounded with.
struct ThreadNoise {
  RoundingBits bits[kWidth];

  __device__ ThreadNoise(const AdamWCall& call, int64_t block) {
    const uint64_t key = random::mix(call.rounding_key, static_cast<uint64_t>(*call.step));
    for (int j = 0; j < 2; ++j) {
      const auto pair = rounding_pair(key, call.first_element / kRoundingBlock + block,
                                      2 * (threadIdx.x % 32) + j);
      bits[j] = pair.low;
      bits[2 + j] = pair.high;
    }
  }
};
__device__ __nv_bfloat16 random_bfloat16(float value, uint32_t noise) {
  return __ushort_as_bfloat16(round_at_random(value, noise));
}

// The first block of a warp, and how far it is to its next one.
struct Blocks {
  int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
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
  for (int j = 0; j < kWidth; ++j) bytes[j] = code.nearest(values[j] / divisor);
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

// The weights of a block, from the master or, where there is none, from bf16.
template <typename T>
__device__ Four<float> load_weights(const AdamWCall& call, int64_t block) {
  if (call.master != nullptr) return load<float>(call.master, block);
  auto narrow_ones = load<T>(call.weights, block);
  Four<float> weights;
  for (int j = 0; j < kWidth; ++j) weights[j] = widen(narrow_ones[j]);
  return weights;
}

template <typename T>
__device__ void store_weights(const AdamWCall& call, int64_t block, Four<float>& weights) {
  if (call.master != nullptr) store(call.master, block, weights);
  if (call.weights == nullptr) return;
  Four<T> rounded_ones;
  for (int j = 0; j < kWidth; ++j) rounded_ones[j] = narrow<T>(weights[j]);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (call.master == nullptr) {
      const ThreadNoise noise(call, block);
      for (int j = 0; j < kWidth; ++j) {
        rounded_ones[j] = random_bfloat16(weights[j], noise.bits[j].weight());
      }
    }
  }
  store(call.weights, block, rounded_ones);
}

template <typename T, typename G>
__global__ void adamw_8bit(AdamWCall call) {
  __shared__ Tables tables;
  if (*call.skip != 0) return;
  fill(tables);
  const auto formula = formula_of(call);
  const Blocks blocks;
  for (int64_t block = blocks.first; block < call.count / kMomentBlock; block += blocks.stride) {
    auto weights = load_weights<T>(call, block);
    auto bytes1 = load<uint8_t>(call.exp_avg, block),
         bytes2 = load<uint8_t>(call.exp_avg_sq, block);
    auto gradient = load<G>(call.gradient, block);
    const float scale1 = call.exp_avg_scale[block], scale2 = call.exp_avg_sq_scale[block];
    float m[kWidth], v[kWidth];
    for (int j = 0; j < kWidth; ++j) {
      m[j] = tables.first[bytes1[j]] * scale1;
      v[j] = tables.second[bytes2[j]] * scale2;
      formula.update(widen(gradient[j]), m[j], v[j], weights[j]);
    }
    const float new_scale1 = encode(m, kSigned, bytes1), new_scale2 = encode(v, kUnsigned, bytes2);
    store_weights<T>(call, block, weights);
    store(call.exp_avg, block, bytes1);
    store(call.exp_avg_sq, block, bytes2);
    if (threadIdx.x % 32 != 0) continue;
    call.exp_avg_scale[block] = new_scale1;
    call.exp_avg_sq_scale[block] = new_scale2;
  }
}

template <typename G>
__global__ void adamw_bfloat16(AdamWCall call) {
  if (*call.skip != 0) return;
  const auto formula = formula_of(call);
  const Blocks blocks;
  for (int64_t block = blocks.first; block < call.count / kRoundingBlock; block += blocks.stride) {
    auto weights = load<__nv_bfloat16>(call.weights, block);
    auto exp_avg = load<__nv_bfloat16>(call.exp_avg, block);
    auto exp_avg_sq = load<__nv_bfloat16>(call.exp_avg_sq, block);
    auto gradient = load<G>(call.gradient, block);
    const ThreadNoise noise(call, block);
    for (int j = 0; j < kWidth; ++j) {
      float m = widen(exp_avg[j]), v = widen(exp_avg_sq[j]), w = widen(weights[j]);
      formula.update(widen(gradient[j]), m, v, w);
      exp_avg[j] = random_bfloat16(m, noise.bits[j].exp_avg());
      exp_avg_sq[j] = random_bfloat16(v, noise.bits[j].exp_avg_sq());
      weights[j] = random_bfloat16(w, noise.bits[j].weight());
    }
    store(call.weights, block, weights);
    store(call.exp_avg, block, exp_avg);
    store(call.exp_avg_sq, block, exp_avg_sq);
  }
}

unsigned num_blocks(const AdamWCall& call) {
  return blocks_for(call.count / kMomentBlock, kWarps, 132 * 16);
}

}  // namespace

void adamw_8bit_on_cuda(const AdamWCall& call) {
  if (call.count == 0) return;
  with_type(call.type, [&](auto type) {
    with_type(call.gradient_type, [&](auto gradient) {
      adamw_8bit<decltype(type), decltype(gradient)>
          <<<num_blocks(call), kThreads, 0, current_stream()>>>(call);
    });
  });
  check_launch();
}

void adamw_bfloat16_on_cuda(const AdamWCall& call) {
  if (call.count == 0) return;
  with_type(call.gradient_type, [&](auto gradient) {
    adamw_bfloat16<decltype(gradient)><<<num_blocks(call), kThreads, 0, current_stream()>>>(call);
  });
  check_launch();
}

}  // namespace skein::ops
