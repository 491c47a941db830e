// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do rows of different lengths fill packs of one size?

#include <cstdint>
#include <span>
#include <vector>

namespace skein::data {

// Items behind each other, and where each group of them ends.
struct Groups {
  std::vector<int32_t> items;
  std::vector<int32_t> ends;

  int64_t count() const { return std::ssize(ends); }
  std::span<const int32_t> group(int64_t index) const;
};

// Best fit, longest first: each item goes where it leaves the least room, and into a new pack where
// it fits nowhere. Requires lengths of 1 to capacity. A pure function: of equal lengths the first
// item is placed first, of equal packs the first is taken.
Groups best_fit(std::span<const int64_t> lengths, int64_t capacity);

// Items sorted by length, longest first, and cut into groups of so many; the last may be smaller.
Groups sorted_runs(std::span<const int64_t> lengths, int64_t run);

}  // namespace skein::data
