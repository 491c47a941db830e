// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// fp32 numbers rounded to bf16 at random: up with the probability that the part cut off is of a
// step between two numbers. So what is too small for bf16 is not lost but arrives on average.
//
// What is drawn for an element follows from its stream's key (seed, segment, update) and its place
// in the segment alone, whoever rounds it: no shard, chunk or thread changes a bit. C++17: nvcc
// reads it too.

#include <cstdint>
#include <cstring>

#include "skein/core/random.h"

namespace skein::ops {

// One call of Philox serves two elements that lie half a block of 128 apart, so that neighbours
// take neighbouring calls: a loop over them vectorizes.
constexpr int64_t kRoundingBlock = 128, kRoundingCalls = kRoundingBlock / 2;

// The bits of an element: 16 for its weight, 16 for each moment.
struct RoundingBits {
  uint32_t word[2];

  SKEIN_HOST_DEVICE uint32_t weight() const { return word[0] & 0xFFFF; }
  SKEIN_HOST_DEVICE uint32_t exp_avg() const { return word[0] >> 16; }
  SKEIN_HOST_DEVICE uint32_t exp_avg_sq() const { return word[1] & 0xFFFF; }
};

// Of elements `call` and `call` + 64 of a block.
struct RoundingPair {
  RoundingBits low, high;
};
SKEIN_HOST_DEVICE inline RoundingPair rounding_pair(uint64_t key, int64_t block, int64_t call) {
  const random::Words words =
      random::philox(key, static_cast<uint64_t>(block * kRoundingCalls + call));
  return {{{words.word[0], words.word[1]}}, {{words.word[2], words.word[3]}}};
}

// bf16, with `noise` of 16 bits. Zero stays zero, infinities stay; a NaN becomes the quiet one.
SKEIN_HOST_DEVICE inline uint16_t round_at_random(float value, uint32_t noise) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + noise) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

}  // namespace skein::ops
