// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the codes of 4-bit weights stand for, on CPU and GPU alike, and the contract of the CUDA
// kernel, in raw pointers. Free of torch, C++17: nvcc reads it too.

#include <cstdint>

#include "skein/core/dtype.h"
#include "skein/core/nf4_layout.h"

namespace skein::ops {

struct Nf4Values {
  float of_code[16];
  float of_scale[256];  // of a code for a scale
};

// Codes: quantiles of the normal distribution, brought to [-1, 1], with an exact zero (QLoRA).
// Scales: bitsandbytes' dynamic type. Seven decades below 1, each with twice as many values as the
// one below it, even between a tenth of the decade and all of it; both signs, 0 and 1.
constexpr Nf4Values nf4_values() {
  Nf4Values values{
      {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
       -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
       0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
       0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F},
      {}};
  constexpr float kDecades[] = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
  constexpr int kZero = 127;
  constexpr double kLeast = 0.1F;
  int next = kZero + 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << decade;
    const double step = (1.0F - 0.1F) / static_cast<float>(parts);
    float below = 0.1F;
    for (int part = 1; part <= parts; ++part, ++next) {
      // Rounded once, from the nearer end: as torch.linspace does it.
      const bool first_half = part < (parts + 1) / 2;
      const auto above =
          static_cast<float>(first_half ? kLeast + step * part : 1 - step * (parts - part));
      const float middle = (below + above) / 2;
      values.of_scale[next] = kDecades[decade] * middle;
      values.of_scale[2 * kZero - next] = -values.of_scale[next];
      below = above;
    }
  }
  values.of_scale[kZero] = 0;
  values.of_scale[255] = 1;
  return values;
}

// The parts of one tensor, each on a boundary of 16 bytes.
struct DequantiseCall {
  const void* codes = nullptr;
  const void* scales = nullptr;  // fp32; of double quantisation bytes
  const float* outer = nullptr;  // of double quantisation: scales of scales, …
  const float* mean = nullptr;   // … and their mean; else null
  void* out = nullptr;           // `numel` elements
  int64_t numel = 0;
  DType type = DType::kF32;
};

void dequantise_on_cuda(const DequantiseCall& call);

}  // namespace skein::ops
