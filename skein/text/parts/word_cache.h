// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which ids did a short word become when it was last met?
//
// Tables of fixed size for each thread (3 MiB), which all tokenizers of the thread share: a word
// has one place, where the last one stays. Only an equal word of the same owner is found.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace skein::text {

struct CachedIds {
  const uint32_t* first = nullptr;  // null: the word is not known
  size_t count = 0;
};

// Words of at most 8 * kNumbers bytes that become at most kMaxIds ids.
template <size_t kNumbers, size_t kMaxIds, int kPlaceBits>
class WordTable {
 public:
  static constexpr size_t kMaxBytes = 8 * kNumbers;

  WordTable() : entries_(std::make_unique<Entry[]>(size_t{1} << kPlaceBits)) {}

  // A word, ready to be looked up.
  struct Key {
    Key(std::string_view word, uint32_t owner);

    std::array<uint64_t, kNumbers> bytes;  // zeros behind the word
    uint32_t owner;
    uint32_t size;
    size_t place;
  };

  CachedIds find(const Key& key) const {
    const auto& entry = entries_[key.place];
    // Not by operator==, which calls a function for it.
    uint64_t different = (entry.owner ^ key.owner) | (entry.size ^ key.size);
    for (size_t i = 0; i < kNumbers; ++i) different |= entry.bytes[i] ^ key.bytes[i];
    return different == 0 ? CachedIds{entry.ids, entry.count} : CachedIds{};
  }
  // Does nothing with too many ids.
  void put(const Key& key, std::span<const uint32_t> ids);

 private:
  struct alignas(64) Entry {  // lines of a processor's cache
    std::array<uint64_t, kNumbers> bytes;
    uint32_t owner;  // 0: the place is free
    uint16_t size;
    uint16_t count;
    uint32_t ids[kMaxIds];
  };

  std::unique_ptr<Entry[]> entries_;
};

struct WordCache {
  static WordCache& of_this_thread();
  // Never given twice, and never 0.
  static uint32_t new_owner();

  WordTable<3, 8, 15> words;        // one line each
  WordTable<8, 14, 13> long_words;  // two
};

// Up to 8 bytes as a number; of two texts of one size it is equal only if they are.
inline uint64_t load_bytes(const char* bytes, size_t size) {
  if (size >= 8) {
    uint64_t value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  if (size >= 4) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, bytes, sizeof low);
    std::memcpy(&high, bytes + size - 4, sizeof high);
    return low | uint64_t{high} << 32;
  }
  if (size == 0) return 0;
  return static_cast<uint8_t>(bytes[0]) | uint64_t{static_cast<uint8_t>(bytes[size / 2])} << 8 |
         uint64_t{static_cast<uint8_t>(bytes[size - 1])} << 16;
}

template <size_t kNumbers, size_t kMaxIds, int kPlaceBits>
WordTable<kNumbers, kMaxIds, kPlaceBits>::Key::Key(std::string_view word, uint32_t owner)
    : owner(owner), size(static_cast<uint32_t>(word.size())) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  uint64_t hash = uint64_t{owner} << 32 | size;
  for (size_t i = 0; i < kNumbers; ++i) {
    bytes[i] = 8 * i < word.size() ? load_bytes(word.data() + 8 * i, word.size() - 8 * i) : 0;
    hash = (hash ^ bytes[i]) * kOdd;
    hash ^= hash >> 32;
  }
  place = hash * kOdd >> (64 - kPlaceBits);
}

template <size_t kNumbers, size_t kMaxIds, int kPlaceBits>
void WordTable<kNumbers, kMaxIds, kPlaceBits>::put(const Key& key, std::span<const uint32_t> ids) {
  if (ids.size() > kMaxIds) return;
  auto& entry = entries_[key.place];
  entry.bytes = key.bytes;
  entry.owner = key.owner;
  entry.size = static_cast<uint16_t>(key.size);
  entry.count = static_cast<uint16_t>(ids.size());
  std::ranges::copy(ids, entry.ids);
}

}  // namespace skein::text
