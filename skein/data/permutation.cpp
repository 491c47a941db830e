// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/permutation.h"

#include <bit>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/random.h"

namespace skein::data {
namespace {

// Part of the meaning of saved positions: changing either changes the order of every run.
constexpr int kRounds = 8;
constexpr uint64_t kOrderStream = 0x6f72646572;        // "order"
constexpr uint64_t kHoldoutStream = 0x686f6c646f7574;  // "holdout"

// A Feistel network over two halves of `half_bits` each. Whatever the round function, every round
// can be undone, so the whole is a bijection of [0, 4^half_bits).
uint64_t feistel(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const auto words = random::philox(key, right, static_cast<uint64_t>(round));
    left = std::exchange(right, left ^ (words.word[0] & mask));
  }
  return left << half_bits | right;
}

uint64_t feistel_inverse(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (int round = kRounds - 1; round >= 0; --round) {
    const auto words = random::philox(key, left, static_cast<uint64_t>(round));
    right = std::exchange(left, right ^ (words.word[0] & mask));
  }
  return left << half_bits | right;
}

int half_bits_of(uint64_t n) { return (64 - std::countl_zero(n - 1) + 1) / 2; }

}  // namespace

uint64_t permuted(uint64_t index, uint64_t n, uint64_t key) {
  SKEIN_CHECK(index < n && n <= uint64_t{1} << 63, "index outside of the permutation");
  if (n == 1) return 0;
  const int half_bits = half_bits_of(n);
  // Cycle walking: a value outside of [0, n) is permuted again. The cycle it lies on leads back
  // into the range, and no two indices meet; the network is at most four times as large as n.
  do {
    index = feistel(index, half_bits, key);
  } while (index >= n);
  return index;
}

uint64_t unpermuted(uint64_t place, uint64_t n, uint64_t key) {
  SKEIN_CHECK(place < n && n <= uint64_t{1} << 63, "place outside of the permutation");
  if (n == 1) return 0;
  const int half_bits = half_bits_of(n);
  do {
    place = feistel_inverse(place, half_bits, key);
  } while (place >= n);
  return place;
}

uint64_t epoch_key(uint64_t seed, uint64_t epoch) {
  return random::mix(random::mix(seed, kOrderStream), epoch);
}

uint64_t holdout_key(uint64_t seed) { return random::mix(seed, kHoldoutStream); }

}  // namespace skein::data
