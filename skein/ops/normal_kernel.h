// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Keyed normal values: the formula that CPU and GPU share, and the contract of the CUDA kernel, in
// raw pointers. Free of torch, C++17: nvcc reads it too.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "skein/core/dtype.h"
#include "skein/core/random.h"

namespace skein::ops {

constexpr int kNormalWords = 4;  // elements per Philox call

// Elements 4 · block to 4 · block + 3 of a stream, by Box and Muller's transform. In double, for
// log, sin and cos are last-bit equal nowhere: rounded to fp32, CPU and GPU still agree but for
// one element in some 10⁸.
SKEIN_HOST_DEVICE inline void normal4(uint64_t key, int64_t block, double (&out)[kNormalWords]) {
  constexpr double kTwoPi = 2 * 3.141592653589793;
  const random::Words words = random::philox(key, static_cast<uint64_t>(block));
  for (size_t pair = 0; pair < 2; ++pair) {
    const double u = (static_cast<double>(words.word[2 * pair]) + 1) * 0x1p-32;  // (0, 1]
    const double angle = kTwoPi * words.word[2 * pair + 1] * 0x1p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    out[2 * pair] = radius * std::cos(angle);
    out[2 * pair + 1] = radius * std::sin(angle);
  }
}

// Elements [begin, begin + count) of the stream `key`, times `deviation`, rounded to fp32 and then
// to `type`.
struct NormalCall {
  void* out = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
  uint64_t key = 0;
  double deviation = 1;
  DType type = DType::kF32;
};

void normal_on_cuda(const NormalCall& call);

}  // namespace skein::ops
