// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Moments in 8 bits: what does a byte mean, and which one is nearest to a value?
//
// 128 elements form a block. Its scale is the largest magnitude in it; a byte names one of 256
// numbers of at most 1, and means this number times the scale. The numbers are those of
// bitsandbytes' dynamic map: in decade i = 0 … 6, from 10^(i-7) to 10^(i-6), lie the middles of 2^i
// equal parts (a signed code has them on both sides of zero) or of 2^(i+1) (an unsigned one); 0 and
// 1 complete them. Bytes 0, 1, 2, … are 0 and the numbers above it, rising, and 255, 254, … those
// below it, falling: memory of zeros is moments of zero.
//
// The meaning of a byte is stored on disk (docs/checkpoint_format.md) and never changes. C++17:
// nvcc reads it too.

#include <cstdint>

#include "skein/core/random.h"

namespace skein::ops {

constexpr int64_t kMomentBlock = 128;  // elements that share a scale

struct MomentCode {
  static constexpr int kDecades = 7;
  // Where a magnitude belongs that is nearest to one of its numbers.
  struct Decade {
    float above = 0;  // it is larger than this
    float slope = 0,
          end = 0;  // it lies in the part that slope * magnitude - shift is rounded down to
    float shift = 0;
    int first = 0;  // byte of its first number
  };

  float values[256] = {};  // of bytes
  Decade decades[kDecades] = {};
  float above_last = 0;  // what is larger is nearest to 1
  bool is_signed = false;

  // Without a branch, so that loops over it vectorize. A NaN has a byte too: that of a NaN's block
  // does not matter, for its scale is a NaN.
  SKEIN_HOST_DEVICE uint8_t nearest(float value) const {
    const float magnitude = is_signed && value < 0 ? -value : value;
    Decade decade = decades[0];
    for (int i = 1; i < kDecades; ++i) {
      const bool is_higher = magnitude > decades[i].above;
      decade.slope = is_higher ? decades[i].slope : decade.slope;
      decade.shift = is_higher ? decades[i].shift : decade.shift;
      decade.end = is_higher ? decades[i].end : decade.end;
      decade.first = is_higher ? decades[i].first : decade.first;
    }
    const float place = magnitude * decade.slope - decade.shift;
    const float bounded = place < decade.end ? place : decade.end;
    int byte = decade.first + static_cast<int>(bounded > 0 ? bounded : 0);
    byte = magnitude > decades[0].above ? byte : 0;
    if (!is_signed) return static_cast<uint8_t>(magnitude > above_last ? 255 : byte);
    byte = value > above_last ? 128 : byte;
    return static_cast<uint8_t>(value < 0 ? -byte : byte);
  }
};

constexpr MomentCode make_moment_code(bool is_signed) {
  constexpr double kEnd[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};  // of decade i
  MomentCode code;
  code.is_signed = is_signed;
  int byte = 1;
  double last = 0;  // the number before
  for (int i = 0; i < MomentCode::kDecades; ++i) {
    const int parts = is_signed ? 1 << i : 2 << i;
    const auto middle = [&](int part) { return kEnd[i] * (0.1 + 0.9 * (part + 0.5) / parts); };
    auto& decade = code.decades[i];
    decade.above = static_cast<float>((last + middle(0)) / 2);
    decade.slope = static_cast<float>(parts / (0.9 * kEnd[i]));
    decade.shift = static_cast<float>(parts / 9.0);
    decade.end = static_cast<float>(parts - 1);
    decade.first = byte;
    for (int part = 0; part < parts; ++part, ++byte) {
      last = middle(part);
      code.values[byte] = static_cast<float>(last);
      if (is_signed) code.values[256 - byte] = static_cast<float>(-last);
    }
  }
  code.values[byte] = 1;
  code.above_last = static_cast<float>((last + 1) / 2);
  // What stands under a root and a fraction bar never becomes zero: a first moment that outlives it
  // would make a huge step.
  if (!is_signed) code.decades[0].above = 0;
  return code;
}

}  // namespace skein::ops
