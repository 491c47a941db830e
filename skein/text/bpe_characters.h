// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Tables over characters that a vocabulary is made of.

#include <cstdint>
#include <vector>

#include "skein/core/random.h"

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

// Is a pair of ids surely none that was added? A table of bits: it forgets no pair, and takes a few
// others for one.
class PairFilter {
 public:
  PairFilter() : bits_(kBits / 64, 0) {}

  void add(uint32_t left, uint32_t right) {
    const size_t bit = bit_of(left, right);
    bits_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  bool may_have(uint32_t left, uint32_t right) const {
    const size_t bit = bit_of(left, right);
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  static constexpr size_t kBits = size_t{1} << 21;

  static size_t bit_of(uint32_t left, uint32_t right) {
    return random::mix(uint64_t{left} << 32 | right, 0) & (kBits - 1);
  }

  std::vector<uint64_t> bits_;
};

}  // namespace skein::text
