// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Counter-based randomness: a value depends on what is drawn, never on who draws it or when.
//
// Philox 4x32-10 maps (64-bit key, 128-bit counter) to four 32-bit words. A stream's key is made
// of what names it (seed, parameter name, step, layer, …) and the counter is the element's index,
// so that any rank can draw any part alone. The CUDA kernels include this header too: C++17, no
// standard containers.

#include <cstdint>

#ifdef __CUDACC__
#define SKEIN_HOST_DEVICE __host__ __device__
#else
#define SKEIN_HOST_DEVICE
#endif

namespace skein::random {

struct Words {
  uint32_t word[4];
};

SKEIN_HOST_DEVICE inline Words philox(uint64_t key, uint64_t counter_low,
                                      uint64_t counter_high = 0) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  Words c{{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
           static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c.word[0], product1 = kMultiplier1 * c.word[2];
    c = Words{{static_cast<uint32_t>(product1 >> 32) ^ c.word[1] ^ key0,
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ c.word[3] ^ key1,
               static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

// Mixes one more part of a stream's name into its key (splitmix64's finaliser).
SKEIN_HOST_DEVICE inline uint64_t mix(uint64_t key, uint64_t part) {
  uint64_t z = key + 0x9E3779B97F4A7C15 * (part + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// In [0, 1), from the upper 24 bits: exact in float.
SKEIN_HOST_DEVICE inline float to_unit(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

// Signs of the random projection of gradients, one for each element of a parameter and each column:
// one bit of philox, 128 columns a call. A sign depends on the stream, the element and the column
// alone, so that a projection to fewer columns is the beginning of one to more. What makes a
// stream, and test vectors: docs/gradient_format.md.

inline constexpr int64_t kColumnsPerCall = 128;  // signs of one philox call

// The signs of the columns [128 * group, 128 * group + 128) for one element: that of column c is
// bit c % 32 of word (c % 128) / 32.
SKEIN_HOST_DEVICE inline Words sign_bits(uint64_t stream, uint64_t element, uint64_t group) {
  return philox(stream, element, group);
}

// +1 for a bit that is 1, -1 for 0. `bit` is 0 or 1.
SKEIN_HOST_DEVICE inline float sign_of_bit(uint32_t bit) { return bit != 0 ? 1.0F : -1.0F; }

SKEIN_HOST_DEVICE inline float projection_sign(uint64_t stream, uint64_t element, uint64_t column) {
  const auto bits = sign_bits(stream, element, column / kColumnsPerCall);
  return sign_of_bit(bits.word[(column % kColumnsPerCall) / 32] >> (column % 32) & 1);
}

}  // namespace skein::random
