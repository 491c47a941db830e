// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which merges compress a corpus best?
//
// Starts from the 256 bytes and merges the most frequent pair of neighbours, again and again, until
// the vocabulary is full. Of equally frequent pairs the one with the lower ids is taken, so that
// the answer depends on the counts alone.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "skein/text/bpe_word_count.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {

struct BpeTrainerOptions {
  int64_t vocab_size = 0;      // with bytes and special tokens
  uint64_t min_frequency = 2;  // pairs seen less often are left alone
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // they get the first ids
  std::function<void(int64_t)> progress =
      nullptr;  // called with the vocabulary's size after every merge
};

// The vocabulary is smaller than asked for when no pair is left that is frequent enough. Throws
// UserError when vocab_size does not even hold the special tokens and the 256 bytes.
TrainedBpe train_bpe(const std::vector<WordCount>& words, const BpeTrainerOptions& options);

}  // namespace skein::text
