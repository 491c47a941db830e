// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a draw is, on CPU and GPU alike, and the contract of the CUDA kernel in raw pointers. Free
// of torch, C++17: nvcc reads it too.
//
// Every token weighs exp((logit - largest) / temperature), as a whole number of 2^-44: sums of
// whole numbers are the same in every order. Those that top-k, top-p and min-p leave share a line
// in the order of the vocabulary; a draw is a point of it.

#include <cmath>
#include <cstdint>

#include "skein/core/dtype.h"
#include "skein/core/random.h"

namespace skein::ops {

constexpr double kWeightOne = 0x1p44;  // a weight of 1; a million of them fit in 64 bits
constexpr double kNothing = -46;       // 2 to this power rounds to no weight

// Names the draws of a prompt in a step.
SKEIN_HOST_DEVICE inline uint64_t draw_key(uint64_t seed, uint64_t step, uint64_t prompt) {
  constexpr uint64_t kStream = 0x73616D706C65;  // "sample": other uses of a seed draw other numbers
  return random::mix(random::mix(random::mix(seed, kStream), step), prompt);
}

// A number in [0, 1), times 2^64: of the token that has this position in its text.
SKEIN_HOST_DEVICE inline uint64_t draw_bits(uint64_t key, uint64_t sample, uint64_t position) {
  const random::Words words = random::philox(key, position, sample);
  return uint64_t{words.word[0]} << 32 | words.word[1];
}

// floor(bits / 2^64 · mass): a point of a line of that length.
SKEIN_HOST_DEVICE inline uint64_t point_of(uint64_t bits, uint64_t mass) {
#ifdef __CUDA_ARCH__
  return __umul64hi(bits, mass);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{bits} * mass >> 64);
#endif
}

SKEIN_HOST_DEVICE inline double two_to(int power) {
  const uint64_t bits = static_cast<uint64_t>(power + 1023) << 52;
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  double value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

// `inverse`: of the temperature. 2^n times 2^f, |f| at most a half, of which the powers of ln 2 up
// to the eleventh are 47 bits: a fraction of what the library's exponential takes.
SKEIN_HOST_DEVICE inline uint64_t weight_of(double logit, double largest, double inverse) {
  const double exponent = (logit - largest) * inverse * 1.4426950408889634;
  if (exponent < kNothing) return 0;
  const double whole = std::floor(exponent + 0.5), fraction = exponent - whole;
  double power = 4.44553827187081e-10;
  power = power * fraction + 7.054911620801121e-09;
  power = power * fraction + 1.0178086009239696e-07;
  power = power * fraction + 1.3215486790144305e-06;
  power = power * fraction + 1.5252733804059838e-05;
  power = power * fraction + 0.00015403530393381606;
  power = power * fraction + 0.0013333558146428441;
  power = power * fraction + 0.009618129107628477;
  power = power * fraction + 0.055504108664821576;
  power = power * fraction + 0.2402265069591007;
  power = power * fraction + 0.6931471805599453;
  power = power * fraction + 1.0;
  const auto shift = static_cast<int>(whole) + 44;  // below 0: less than a weight of one half
  return shift < -1 ? 0 : static_cast<uint64_t>(std::floor(power * two_to(shift) + 0.5));
}

// Greater where the number is.
SKEIN_HOST_DEVICE inline uint32_t sort_key_of(float value) {
#ifdef __CUDA_ARCH__
  const uint32_t bits = __float_as_uint(value == 0 ? 0.0F : value);
#else
  const float plain = value == 0 ? 0.0F : value;  // there are two zeros
  uint32_t bits;
  __builtin_memcpy(&bits, &plain, sizeof bits);
#endif
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

// A sort key's digits, from the first: how far the digit is shifted, and how many bits it has.
constexpr int kKeyDigits = 3, kDigitShift[kKeyDigits] = {21, 10, 0},
              kDigitBits[kKeyDigits] = {11, 11, 10}, kMostDigits = 1 << 11;

// What is seen already becomes less likely.
SKEIN_HOST_DEVICE inline double penalised(double logit, double penalty) {
  return logit < 0 ? logit * penalty : logit / penalty;
}

struct SampleCall {
  const void* logits = nullptr;  // (rows, vocabulary), `stride` elements from row to row
  int64_t rows = 0, vocabulary = 0, stride = 0;
  DType type = DType::kF32;
  bool greedy = false;        // temperature 0
  double inverse = 1;         // of the temperature, of 0: 1
  int64_t top_k = 0;          // 0: all
  double top_p = 1;           // 1: all
  uint64_t least_weight = 0;  // min-p
  double penalty = 1;
  uint8_t* seen = nullptr;  // (rows, vocabulary): 1 what is penalised, the new token too; or null
  const int64_t *keys = nullptr, *samples = nullptr, *positions = nullptr;  // (rows)
  int64_t position_offset = 0;  // from those to the new token's
  int64_t* tokens = nullptr;    // (rows)
  // (rows), without top-k, top-p, min-p, penalty, or 0 if they are not asked for; NaN: bad logits
  double* log_probs = nullptr;
  bool wants_log_probs = false;
};

void sample_on_cuda(const SampleCall& call);

}  // namespace skein::ops
