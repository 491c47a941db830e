// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which samples are trained on, and which are held out?
//
// Held-out blocks are the first of a permutation named by the seed, the others stay for training:
// two sets that never meet, found per index and never stored.

#include <cstdint>

#include "skein/data/blocks.h"

namespace skein::data {

enum class Holdout { kKept, kHeldOut };

class SampleSet {
 public:
  // All blocks, in their order. Implicit: a set is what everything below works on.
  SampleSet(const Blocks& blocks);  // NOLINT(google-explicit-constructor)
  // One side of the division at `percent` of the blocks, rounded; each side has at least one.
  // Requires 0 < percent < 100. Throws UserError when there are fewer than two blocks.
  SampleSet(const Blocks& blocks, double percent, uint64_t seed, Holdout side);

  // At most so many of them.
  SampleSet first(int64_t count) const;

  int64_t count() const { return count_; }
  // The id of one of them; requires 0 <= index < count().
  int64_t sample(int64_t index) const;
  const Blocks& blocks() const { return blocks_; }

 private:
  Blocks blocks_;
  bool is_divided_ = false;
  uint64_t key_ = 0;
  int64_t begin_ = 0;  // in the permutation
  int64_t count_ = 0;
};

}  // namespace skein::data
