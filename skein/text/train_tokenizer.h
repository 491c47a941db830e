// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Makes a tokenizer from text files: counts, merges, writes.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/core/file.h"

namespace skein::text {

constexpr const char* kEndOfText = "<|endoftext|>";

struct TokenizerTrainOptions {
  std::vector<fs::path> inputs;  // .txt, or .jsonl with "text"
  int64_t vocab_size = 0;        // with 256 bytes and the special tokens
  fs::path out;
  bool overwrite = false;  // also where a tokenizer or weights lie
  uint64_t min_frequency = 2;
  std::vector<std::string> special_tokens;  // besides kEndOfText, which always has id 0
  int threads = 0;                          // 0: all cores; no influence on the result
};

struct TokenizerTrainSummary {
  int64_t vocab_size = 0;  // less than asked for when the text has no more frequent pairs
  int64_t num_merges = 0;
  uint64_t num_words = 0;  // pre-tokens, each as often as it occurs
  int64_t num_unique_words = 0;
};

// Writes tokenizer.json and tokenizer_config.json into `out`, each atomically. Progress goes to
// stderr. Throws UserError for bad options or no text at all, IoError for broken input.
TokenizerTrainSummary train_tokenizer(const TokenizerTrainOptions& options);

}  // namespace skein::text
