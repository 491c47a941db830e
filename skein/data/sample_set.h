// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which samples are trained on, and which are held out?
//
// Held-out samples are the first of a permutation named by the seed, the others stay for training:
// two sets that never meet, found per index and never stored.

#include <cstdint>

namespace skein::data {

enum class Holdout { kKept, kHeldOut };

class SampleSet {
 public:
  // All `count` samples of a source, in their order.
  explicit SampleSet(int64_t count) : all_(count), count_(count) {}
  // One side of the division of `all` samples, of which `held_out` are held out.
  // Requires 0 < held_out < all.
  static SampleSet divided(int64_t all, int64_t held_out, uint64_t seed, Holdout side);
  // One side of the division at `percent` of `all` samples, rounded; each side has at least one.
  // Requires 0 < percent < 100. Throws UserError when there are fewer than two samples.
  SampleSet(int64_t all, double percent, uint64_t seed, Holdout side);

  // At most so many of them.
  SampleSet first(int64_t count) const;

  int64_t count() const { return count_; }
  // The id of one of them; requires 0 <= index < count().
  int64_t sample(int64_t index) const;

 private:
  int64_t all_;
  bool is_divided_ = false;
  uint64_t key_ = 0;
  int64_t begin_ = 0;  // in the permutation
  int64_t count_ = 0;
};

}  // namespace skein::data
