// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// In which order are the samples of an epoch read?
//
// A keyed permutation that is computed, not stored: any rank finds any position alone, in O(1)
// memory, so that a resumed run seeks instead of replaying.

#include <cstdint>

namespace skein::data {

// The place of `index` in a permutation of [0, n) named by `key`. Requires index < n <= 2^63.
uint64_t permuted(uint64_t index, uint64_t n, uint64_t key);

// Undoes it: permuted(unpermuted(place, n, key), n, key) == place.
uint64_t unpermuted(uint64_t place, uint64_t n, uint64_t key);

// The permutation's name for one epoch of a run.
uint64_t epoch_key(uint64_t seed, uint64_t epoch);
// And for the choice of the blocks that are held out of training.
uint64_t holdout_key(uint64_t seed);

}  // namespace skein::data
