// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>

#include "skein/core/random.h"

namespace skein::text {
namespace {

constexpr size_t kScanLimit = 64;  // tokens; beyond, the scan's quadratic time shows

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

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : entries_(std::bit_ceil(std::max<size_t>(16, merges.size() * 2))) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    entries_[place_of(pair)] = {pair, static_cast<uint32_t>(rank), merges[rank].result};
  }
}

size_t MergeTable::place_of(uint64_t pair) const {
  const size_t mask = entries_.size() - 1;
  size_t place = random::mix(pair, 0) & mask;
  while (entries_[place].rank != kNoRank && entries_[place].pair != pair)
    place = (place + 1) & mask;
  return place;
}

MergeTable::Entry MergeTable::find(uint32_t left, uint32_t right) const {
  return entries_[place_of(pair_of(left, right))];
}

void MergeTable::merge(std::vector<uint32_t>& tokens, std::vector<uint32_t>* lengths) const {
  if (tokens.size() <= kScanLimit) {
    merge_by_scan(tokens, lengths);
  } else {
    merge_by_queue(tokens, lengths);
  }
}

void MergeTable::merge_by_scan(std::vector<uint32_t>& tokens,
                               std::vector<uint32_t>* lengths) const {
  if (tokens.size() < 2) return;
  // merges[i] is the one of tokens i and i + 1.
  std::vector<Entry> merges(tokens.size() - 1);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = find(tokens[i], tokens[i + 1]);
  while (!merges.empty()) {
    const auto best = std::min_element(merges.begin(), merges.end(),
                                       [](auto& a, auto& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) return;
    const auto i = best - merges.begin();
    tokens[i] = best->result;
    tokens.erase(tokens.begin() + i + 1);
    merges.erase(best);
    if (lengths != nullptr) {
      (*lengths)[i] += (*lengths)[i + 1];
      lengths->erase(lengths->begin() + i + 1);
    }
    if (i > 0) merges[i - 1] = find(tokens[i - 1], tokens[i]);
    if (i < std::ssize(merges)) merges[i] = find(tokens[i], tokens[i + 1]);
  }
}

// The tokens form a linked list over their first positions. Every possible merge waits under its
// rank; one that has become impossible is noticed when its turn comes.
class LongMerge {
 public:
  LongMerge(const MergeTable& table, std::vector<uint32_t>& tokens, std::vector<uint32_t>* lengths)
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

  void run() {
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
    collect();
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
    if (lengths_ != nullptr) (*lengths_)[position] += (*lengths_)[second];
    if (before_[position] != kNone) wait(before_[position]);
    if (after_[position] == size()) return;
    before_[after_[position]] = position;
    wait(position);
  }

  void collect() {
    size_t count = 0;
    for (uint32_t i = 0; i < size(); ++i) {
      if (is_gone(i)) continue;
      if (lengths_ != nullptr) (*lengths_)[count] = (*lengths_)[i];
      tokens_[count++] = tokens_[i];
    }
    tokens_.resize(count);
    if (lengths_ != nullptr) lengths_->resize(count);
  }

  const MergeTable& table_;
  std::vector<uint32_t>& tokens_;
  std::vector<uint32_t>* lengths_;
  std::vector<uint32_t> before_;
  std::vector<uint32_t> after_;  // kNone: the token was merged into the one before it
  std::unordered_map<uint32_t, Positions> waiting_;
  MinHeap ranks_;  // the keys of waiting_
};

void MergeTable::merge_by_queue(std::vector<uint32_t>& tokens,
                                std::vector<uint32_t>* lengths) const {
  LongMerge(*this, tokens, lengths).run();
}

}  // namespace skein::text
