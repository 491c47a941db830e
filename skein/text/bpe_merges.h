// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which neighbours are merged, and in which order?
//
// A merge replaces two neighbouring tokens by one. Of all merges that a sequence allows, the one of
// the lowest rank is done first, and of equal ranks the leftmost.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace skein::text {

struct Merge {
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t result = 0;
};

class MergeTable {
 public:
  // The index of a merge is its rank; of two merges of one pair the later one holds.
  explicit MergeTable(const std::vector<Merge>& merges);

  // Merges until no neighbours can be merged, and returns how many tokens are left: the first ones
  // of `tokens`. O(n log n) at worst, O(n) for most texts. `lengths`, unless null, has a number for
  // each token; those of merged tokens are added.
  size_t merge(std::span<uint32_t> tokens, uint32_t* lengths = nullptr) const;

  // The two ways to do it, which give the same answer: a scan that is quick for words of at most
  // kScanLimit tokens, and a queue for what is long.
  static constexpr size_t kScanLimit = 64;  // beyond, the scan's quadratic time shows
  size_t merge_by_scan(std::span<uint32_t> tokens, uint32_t* lengths = nullptr) const;
  size_t merge_by_queue(std::span<uint32_t> tokens, uint32_t* lengths = nullptr) const;

  // The highest rank among the merges that `tokens` (kScanLimit at most) are merged by; none where
  // there is no merge.
  std::optional<uint32_t> highest_rank(std::span<uint32_t> tokens) const;

 private:
  friend class LongMerge;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Entry {
    uint64_t pair = 0;
    uint32_t rank = kNoRank;  // kNoRank: the place is free
    uint32_t result = 0;
  };

  static uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  const Entry& find(uint32_t left, uint32_t right) const;
  size_t place_of(uint64_t pair) const;

  std::vector<Entry> entries_;  // open addressing, a power of two
  int shift_;                   // of a hash, to a place
  bool has_many_;               // more than the scan can number
};

}  // namespace skein::text
