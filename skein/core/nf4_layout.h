// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where do the parts of a weight in 4 bits lie? In one run of bytes: plans count them, flat memory
// holds and cuts them like any other parameter. C++17: nvcc reads it too.
//
// NF4, as bitsandbytes has it: of every 64 elements, in the order of the file, the largest
// magnitude is their scale, and each is a code of 4 bits for one of 16 shares of it. With double
// quantisation scales are codes too, of 8 bits: of every 256 of them, less the mean of all, the
// largest magnitude is kept in 32.
//
//   codes        two elements a byte, the first in the upper half
//   scales       32 bits each, or 8
//   scales of scales, their mean: 32 bits each; of double quantisation alone

#include <cstdint>

namespace skein {

struct Nf4Layout {
  static constexpr int64_t kBlock = 64;          // elements of a scale
  static constexpr int64_t kScaleBlock = 256;    // scales of a scale of scales
  static constexpr int64_t kPartAlignment = 16;  // bytes: of a GPU's widest load

  int64_t numel = 0;
  bool doubly = true;  // double_quantization

  constexpr int64_t num_scales() const { return (numel + kBlock - 1) / kBlock; }
  constexpr int64_t num_outer_scales() const {
    return doubly ? (num_scales() + kScaleBlock - 1) / kScaleBlock : 0;
  }

  // The first byte of each part; the codes' is 0.
  constexpr int64_t scales_begin() const { return aligned((numel + 1) / 2); }
  constexpr int64_t outer_begin() const {
    return aligned(scales_begin() + num_scales() * (doubly ? 1 : 4));
  }
  constexpr int64_t mean_begin() const { return outer_begin() + 4 * num_outer_scales(); }
  constexpr int64_t bytes() const { return doubly ? mean_begin() + 4 : outer_begin(); }

 private:
  static constexpr int64_t aligned(int64_t bytes) {
    return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
};

}  // namespace skein
