// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/text/parts/bpe_alphabet.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

using Pair = uint64_t;  // left id, right id: ordered as the pair is

Pair pair_of(uint32_t left, uint32_t right) { return Pair{left} << 32 | right; }
uint32_t left_of(Pair pair) { return static_cast<uint32_t>(pair >> 32); }
uint32_t right_of(Pair pair) { return static_cast<uint32_t>(pair); }

struct PairHash {
  size_t operator()(Pair pair) const { return random::mix(pair, 0); }
};

struct PairState {
  int64_t count = 0;
  std::vector<uint32_t> words;  // that had the pair at some time; the last entry is never repeated
};

struct Candidate {
  int64_t count = 0;
  Pair pair = 0;

  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct Word {
  size_t begin = 0;   // into the common token array
  uint32_t size = 0;  // shrinks as merges are done
  int64_t count = 0;
};

class Trainer {
 public:
  Trainer(const std::vector<WordCount>& words, const BpeTrainerOptions& options)
      : options_(options) {
    const auto byte_ids = add_alphabet();
    for (const auto& word : words) add_word(word, byte_ids);
    for (const auto& [pair, state] : pairs_) candidates_.push({state.count, pair});
  }

  TrainedBpe train() {
    while (std::ssize(trained_.vocabulary) < options_.vocab_size) {
      const Pair pair = most_frequent();
      if (pair == kNoPair) break;
      merge(pair);
      if (options_.progress) options_.progress(std::ssize(trained_.vocabulary));
    }
    return std::move(trained_);
  }

 private:
  static constexpr Pair kNoPair = UINT64_MAX;

  // Special tokens, then the bytes in the order of their spelling: the ids that other trainers
  // give.
  std::array<uint32_t, 256> add_alphabet() {
    for (const auto& token : options_.special_tokens) {
      if (!ids_.contains(token)) add_token(token);
    }
    trained_.num_special = std::ssize(trained_.vocabulary);
    std::array<int, 256> order;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [](int byte) { return byte_characters()[byte]; });
    std::array<uint32_t, 256> byte_ids;
    for (const int byte : order) byte_ids[byte] = add_token(to_utf8(byte_characters()[byte]));
    if (std::ssize(trained_.vocabulary) > options_.vocab_size) {
      throw UserError(
          fmt::format("--vocab-size is {}: 256 bytes and {} special tokens need at least {}",
                      options_.vocab_size, trained_.num_special, trained_.vocabulary.size()));
    }
    return byte_ids;
  }

  // The id of a token that may exist: two merges can spell the same.
  uint32_t add_token(const std::string& spelling) {
    const auto [place, is_new] =
        ids_.try_emplace(spelling, static_cast<uint32_t>(trained_.vocabulary.size()));
    if (is_new) trained_.vocabulary.push_back(spelling);
    return place->second;
  }

  void add_word(const WordCount& word, const std::array<uint32_t, 256>& byte_ids) {
    const auto index = static_cast<uint32_t>(words_.size());
    words_.push_back({tokens_.size(), static_cast<uint32_t>(word.bytes.size()),
                      static_cast<int64_t>(word.count)});
    for (const char byte : word.bytes) tokens_.push_back(byte_ids[static_cast<uint8_t>(byte)]);
    const auto tokens = tokens_of(words_.back());
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      add(pair_of(tokens[i], tokens[i + 1]), index);
    }
  }

  std::span<uint32_t> tokens_of(const Word& word) {
    return std::span(tokens_).subspan(word.begin, word.size);
  }

  void add(Pair pair, uint32_t word) {
    auto& state = pairs_[pair];
    state.count += words_[word].count;
    if (state.words.empty() || state.words.back() != word) state.words.push_back(word);
  }

  void remove(uint32_t left, uint32_t right, uint32_t word) {
    pairs_.at(pair_of(left, right)).count -= words_[word].count;
  }

  // Counts in the queue may be out of date, and are then only too high: look again and put back.
  Pair most_frequent() {
    while (!candidates_.empty()) {
      const auto top = candidates_.top();
      candidates_.pop();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count < std::max<int64_t>(1, static_cast<int64_t>(options_.min_frequency))) continue;
      if (count == top.count) return top.pair;
      candidates_.push({count, top.pair});
    }
    return kNoPair;
  }

  void merge(Pair pair) {
    const uint32_t left = left_of(pair), right = right_of(pair);
    const uint32_t result = add_token(trained_.vocabulary[left] + trained_.vocabulary[right]);
    trained_.merges.push_back({left, right, result});
    auto words = std::move(pairs_.at(pair).words);
    std::ranges::sort(words);
    words.erase(std::unique(words.begin(), words.end()), words.end());
    grown_.clear();
    for (const uint32_t word : words) merge_word(word, trained_.merges.back());
    pairs_.erase(pair);
    grown_.erase(pair);
    for (const Pair grown : grown_) {
      if (const auto found = pairs_.find(grown); found != pairs_.end()) {
        candidates_.push({found->second.count, grown});
      }
    }
  }

  // Rewrites a word in place. Where "l r" becomes "x" between p and n, the pairs (p, l) and (r, n)
  // end, and (p, x) and (x, n) begin.
  void merge_word(uint32_t index, const Merge& merge) {
    const auto tokens = tokens_of(words_[index]);
    size_t out = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool is_pair =
          i + 1 < tokens.size() && tokens[i] == merge.left && tokens[i + 1] == merge.right;
      if (!is_pair) {
        tokens[out++] = tokens[i];
        continue;
      }
      if (out > 0) {
        remove(tokens[out - 1], merge.left, index);
        grow(pair_of(tokens[out - 1], merge.result), index);
      }
      if (i + 2 < tokens.size()) {
        remove(merge.right, tokens[i + 2], index);
        grow(pair_of(merge.result, tokens[i + 2]), index);
      }
      tokens[out++] = merge.result;
      ++i;
    }
    words_[index].size = static_cast<uint32_t>(out);
  }

  void grow(Pair pair, uint32_t word) {
    add(pair, word);
    grown_.insert(pair);
  }

  const BpeTrainerOptions& options_;
  TrainedBpe trained_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<uint32_t> tokens_;  // of all words, one after the other
  std::vector<Word> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Candidate> candidates_;
  std::unordered_set<Pair, PairHash> grown_;  // by the merge under way
};

}  // namespace

TrainedBpe train_bpe(const std::vector<WordCount>& words, const BpeTrainerOptions& options) {
  return Trainer(words, options).train();
}

}  // namespace skein::text
