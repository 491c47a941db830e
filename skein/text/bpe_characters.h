// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tables over characters that a vocabulary is made of.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace skein::text {

// A number for characters, such as the id that one has by itself.
class CharacterNumbers {
 public:
  static constexpr uint32_t kMissing = UINT32_MAX;

  CharacterNumbers() : pages_(kCharacters / kPage, 0), numbers_(kPage, kMissing) {}

  uint32_t of(char32_t code) const { return numbers_[pages_[code / kPage] * kPage + code % kPage]; }
  void set(char32_t code, uint32_t number) {
    auto& page = pages_[code / kPage];
    if (page == 0) {
      page = static_cast<uint32_t>(numbers_.size() / kPage);
      numbers_.resize(numbers_.size() + kPage, kMissing);
    }
    numbers_[page * kPage + code % kPage] = number;
  }

 private:
  static constexpr size_t kCharacters = 0x110000, kPage = 256;

  std::vector<uint32_t> pages_;  // page 0 has no characters
  std::vector<uint32_t> numbers_;
};

// Is a pair surely none that was added? A table of bits: it forgets no pair, and takes a few others
// for one.
class PairFilter {
 public:
  // For about so many pairs.
  explicit PairFilter(size_t pairs)
      : shift_(64 - std::countr_zero(
                        std::bit_ceil(std::clamp<size_t>(pairs * kBitsPerPair, kLeast, kMost)))),
        bits_((size_t{1} << (64 - shift_)) / 64, 0) {}

  void add(uint64_t left, uint64_t right) {
    const size_t bit = bit_of(left, right);
    bits_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  bool may_have(uint64_t left, uint64_t right) const {
    const size_t bit = bit_of(left, right);
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  // Small enough to stay in a cache near the core.
  static constexpr size_t kBitsPerPair = 16, kLeast = size_t{1} << 12, kMost = size_t{1} << 22;

  size_t bit_of(uint64_t left, uint64_t right) const {
    return (left * 0x9E3779B97F4A7C15 ^ right * 0xC2B2AE3D27D4EB4F) * 0xD6E8FEB86659FD93 >> shift_;
  }

  int shift_;
  std::vector<uint64_t> bits_;
};

// The lowest rank that each of a few pairs was added with.
class PairRanks {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  PairRanks() : entries_(64) {}

  void add(uint32_t left, uint32_t right, uint32_t rank) {
    if (++count_ * 4 > entries_.size()) grow();
    auto& entry = entries_[place_of(left, right)];
    entry = {left, right, std::min(entry.rank, rank)};
  }
  // kNone: there is no such pair.
  uint32_t of(uint32_t left, uint32_t right) const { return entries_[place_of(left, right)].rank; }

 private:
  struct Entry {
    uint32_t left = 0, right = 0;
    uint32_t rank = kNone;  // kNone: the place is free
  };

  size_t place_of(uint32_t left, uint32_t right) const {
    const size_t mask = entries_.size() - 1;
    const uint64_t hash = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15;
    size_t place = (hash ^ hash >> 32) & mask;
    while (entries_[place].rank != kNone &&
           (entries_[place].left != left || entries_[place].right != right)) {
      place = (place + 1) & mask;
    }
    return place;
  }

  void grow() {
    const auto old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    for (const auto& entry : old) {
      if (entry.rank != kNone) entries_[place_of(entry.left, entry.right)] = entry;
    }
  }

  std::vector<Entry> entries_;  // open addressing, a power of two
  size_t count_ = 0;
};

}  // namespace skein::text
