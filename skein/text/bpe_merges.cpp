// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>

#include "skein/core/error.h"

namespace skein::text {
namespace {

using MinHeap = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

// Where can one pair be merged? Positions mostly arrive in ascending order and are then only
// appended; the stragglers go through a heap.
class Positions {
 public:
  bool empty() const { return next_ == ascending_.size() && stragglers_.empty(); }

  void push(uint32_t position) {
    if (next_ == ascending_.size() || position >= ascending_.back()) {
      ascending_.push_back(position);
    } else {
      stragglers_.push(position);
    }
  }

  uint32_t pop() {
    const bool has_ascending = next_ < ascending_.size();
    if (has_ascending && (stragglers_.empty() || ascending_[next_] <= stragglers_.top())) {
      return ascending_[next_++];
    }
    const uint32_t position = stragglers_.top();
    stragglers_.pop();
    return position;
  }

 private:
  std::vector<uint32_t> ascending_;
  size_t next_ = 0;
  MinHeap stragglers_;
};

template <size_t kLanes>
int32_t lowest_of(const int32_t* keys, size_t count) {
  int32_t lowest[kLanes];
  std::copy(keys, keys + kLanes, lowest);
  for (size_t i = kLanes; i < count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lowest[lane] = std::min(lowest[lane], keys[i + lane]);
    }
  }
  return *std::min_element(lowest, lowest + kLanes);
}

}  // namespace

inline size_t MergeTable::place_of(uint64_t pair) const {
  const size_t mask = entries_.size() - 1;
  uint64_t hash = pair * 0x9E3779B97F4A7C15;
  hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
  size_t place = hash >> shift_;
  while (entries_[place].rank != kNoRank && entries_[place].pair != pair)
    place = (place + 1) & mask;
  return place;
}

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : entries_(std::bit_ceil(std::max<size_t>(16, merges.size() * 2))),
      shift_(64 - std::countr_zero(entries_.size())),
      has_many_(merges.size() >= size_t{1} << 25) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    entries_[place_of(pair)] = {pair, static_cast<uint32_t>(rank), merges[rank].result};
  }
}

inline const MergeTable::Entry& MergeTable::find(uint32_t left, uint32_t right) const {
  return entries_[place_of(pair_of(left, right))];
}

size_t MergeTable::merge(std::span<uint32_t> tokens, uint32_t* lengths) const {
  if (tokens.size() < 2) return tokens.size();
  return tokens.size() <= kScanLimit && !has_many_ ? merge_by_scan(tokens, lengths)
                                                   : merge_by_queue(tokens, lengths);
}

// The tokens stay at their places, linked. Each place has a key, the rank of the merge of its token
// with the next one above its own number, so that the lowest key is the merge that comes first; no
// branch depends on it.
size_t MergeTable::merge_by_scan(std::span<uint32_t> tokens, uint32_t* lengths) const {
  constexpr size_t kLanes = 8;
  constexpr int32_t kNoMerge = INT32_MAX;
  static_assert(kScanLimit % kLanes == 0 && kScanLimit <= 64);
  const size_t count = tokens.size();
  SKEIN_CHECK(count <= kScanLimit, "the scan is for words");
  if (count == 0) return 0;
  int32_t keys[kScanLimit];
  uint32_t results[kScanLimit];
  uint8_t before[kScanLimit + 1], after[kScanLimit];
  const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(keys, keys + padded, kNoMerge);
  const auto look = [&](size_t i) {
    const auto& entry = find(tokens[i], tokens[after[i]]);
    results[i] = entry.result;
    keys[i] = entry.rank == kNoRank ? kNoMerge : static_cast<int32_t>(entry.rank << 6 | i);
  };
  for (size_t i = 0; i < count; ++i) {
    before[i + 1] = static_cast<uint8_t>(i);
    after[i] = static_cast<uint8_t>(i + 1);
  }
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (true) {
    const int32_t lowest = lowest_of<kLanes>(keys, padded);
    if (lowest == kNoMerge) break;
    const size_t first = static_cast<size_t>(lowest) & 63, second = after[first];
    tokens[first] = results[first];
    if (lengths != nullptr) lengths[first] += lengths[second];
    keys[second] = kNoMerge;
    after[first] = after[second];
    before[after[first]] = static_cast<uint8_t>(first);
    if (first > 0) look(before[first]);
    if (after[first] < count) {
      look(first);
    } else {
      keys[first] = kNoMerge;
    }
  }
  size_t left = 0;
  for (size_t i = 0; i < count; i = after[i]) {
    tokens[left] = tokens[i];
    if (lengths != nullptr) lengths[left] = lengths[i];
    ++left;
  }
  return left;
}

std::optional<uint32_t> MergeTable::highest_rank(std::span<uint32_t> tokens) const {
  std::optional<uint32_t> highest;
  while (tokens.size() > 1) {
    size_t best = 0;
    Entry entry;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (const auto& found = find(tokens[i], tokens[i + 1]); found.rank < entry.rank) {
        entry = found;
        best = i;
      }
    }
    if (entry.rank == kNoRank) break;
    highest = std::max(highest.value_or(0), entry.rank);
    tokens[best] = entry.result;
    std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 2, tokens.end(),
              tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    tokens = tokens.first(tokens.size() - 1);
  }
  return highest;
}

// The tokens form a linked list over their first positions. Every possible merge waits under its
// rank; one that has become impossible is noticed when its turn comes.
class LongMerge {
 public:
  LongMerge(const MergeTable& table, std::span<uint32_t> tokens, uint32_t* lengths)
      : table_(table),
        tokens_(tokens),
        lengths_(lengths),
        before_(tokens.size()),
        after_(tokens.size()) {
    for (uint32_t i = 0; i < size(); ++i) {
      before_[i] = i - 1;  // of the first: kNone
      after_[i] = i + 1;
    }
    for (uint32_t i = 0; i + 1 < size(); ++i) wait(i);
  }

  // Returns how many tokens are left.
  size_t run() {
    while (!ranks_.empty()) {
      const uint32_t rank = ranks_.top();
      auto& positions = waiting_.at(rank);
      if (!positions.empty()) {
        merge_at(positions.pop(), rank);
      } else {
        ranks_.pop();
        waiting_.erase(rank);
      }
    }
    return collect();
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  bool is_gone(uint32_t position) const { return after_[position] == kNone; }

  void wait(uint32_t position) {
    const auto entry = table_.find(tokens_[position], tokens_[after_[position]]);
    if (entry.rank == MergeTable::kNoRank) return;
    const auto [place, is_new] = waiting_.try_emplace(entry.rank);
    if (is_new) ranks_.push(entry.rank);
    place->second.push(position);
  }

  void merge_at(uint32_t position, uint32_t rank) {
    if (is_gone(position) || after_[position] == size()) return;
    const uint32_t second = after_[position];
    const auto entry = table_.find(tokens_[position], tokens_[second]);
    if (entry.rank != rank) return;
    tokens_[position] = entry.result;
    after_[position] = after_[second];
    after_[second] = kNone;
    if (lengths_ != nullptr) lengths_[position] += lengths_[second];
    if (before_[position] != kNone) wait(before_[position]);
    if (after_[position] == size()) return;
    before_[after_[position]] = position;
    wait(position);
  }

  size_t collect() {
    size_t count = 0;
    for (uint32_t i = 0; i < size(); ++i) {
      if (is_gone(i)) continue;
      if (lengths_ != nullptr) lengths_[count] = lengths_[i];
      tokens_[count++] = tokens_[i];
    }
    return count;
  }

  const MergeTable& table_;
  std::span<uint32_t> tokens_;
  uint32_t* lengths_;
  std::vector<uint32_t> before_;
  std::vector<uint32_t> after_;  // kNone: the token was merged into the one before it
  std::unordered_map<uint32_t, Positions> waiting_;
  MinHeap ranks_;  // the keys of waiting_
};

size_t MergeTable::merge_by_queue(std::span<uint32_t> tokens, uint32_t* lengths) const {
  return LongMerge(*this, tokens, lengths).run();
}

}  // namespace skein::text
