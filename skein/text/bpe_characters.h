// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tables over characters that a vocabulary is made of.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace skein::text {

// Which id does a character have by itself?
class CharacterIds {
 public:
  static constexpr uint32_t kMissing = UINT32_MAX;

  CharacterIds() : pages_(kCharacters / kPage, 0), ids_(kPage, kMissing) {}

  uint32_t of(char32_t code) const { return ids_[pages_[code / kPage] * kPage + code % kPage]; }
  void set(char32_t code, uint32_t id) {
    auto& page = pages_[code / kPage];
    if (page == 0) {
      page = static_cast<uint32_t>(ids_.size() / kPage);
      ids_.resize(ids_.size() + kPage, kMissing);
    }
    ids_[page * kPage + code % kPage] = id;
  }

 private:
  static constexpr size_t kCharacters = 0x110000, kPage = 256;

  std::vector<uint32_t> pages_;  // page 0 has no characters
  std::vector<uint32_t> ids_;
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

}  // namespace skein::text
