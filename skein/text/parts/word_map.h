// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which token is a word? A table that is made once and then asked for every word of a text: a word
// that it lacks, as most are, costs one look.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "skein/text/parts/word_cache.h"

namespace skein::text {

class WordMap {
 public:
  struct Entry {
    uint32_t id = 0;
    bool merges = false;  // the word's own units merge to it
    // The map's own: the word.
    uint32_t hash = 0;
    uint32_t begin = UINT32_MAX;  // among all words' bytes; UINT32_MAX: the place is free
    uint32_t size = 0;
  };

  // For so many words.
  explicit WordMap(size_t words)
      : entries_(std::bit_ceil(2 * words + 2)), shift_(64 - std::countr_zero(entries_.size())) {}

  // A word that it lacks.
  void add(std::string_view word, uint32_t id, bool merges) {
    const uint64_t hash = hash_of(word);
    auto& entry = entries_[place_of(word, hash)];
    entry.id = id;
    entry.merges = merges;
    entry.hash = static_cast<uint32_t>(hash);
    entry.begin = static_cast<uint32_t>(bytes_.size());
    entry.size = static_cast<uint32_t>(word.size());
    bytes_ += word;
    longest_ = std::max(longest_, word.size());
  }

  // Null: there is no such word.
  const Entry* find(std::string_view word) const {
    if (word.size() > longest_) return nullptr;
    const auto& entry = entries_[place_of(word, hash_of(word))];
    return entry.begin == kFree ? nullptr : &entry;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;

  static uint64_t hash_of(std::string_view word) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
    uint64_t hash = word.size();
    for (size_t i = 0; i < word.size(); i += 8) {
      hash = (hash ^ load_bytes(word.data() + i, word.size() - i)) * kOdd;
      hash ^= hash >> 32;
    }
    return hash * kOdd;
  }

  // Where it is, or where it belongs.
  size_t place_of(std::string_view word, uint64_t hash) const {
    size_t place = hash >> shift_;
    for (; entries_[place].begin != kFree; place = (place + 1) & (entries_.size() - 1)) {
      const auto& entry = entries_[place];
      if (entry.hash == static_cast<uint32_t>(hash) && entry.size == word.size() &&
          std::memcmp(bytes_.data() + entry.begin, word.data(), word.size()) == 0) {
        break;
      }
    }
    return place;
  }

  std::vector<Entry> entries_;  // open addressing, a power of two
  int shift_;                   // of a hash, to a place
  std::string bytes_;           // the words behind each other
  size_t longest_ = 0;
};

}  // namespace skein::text
