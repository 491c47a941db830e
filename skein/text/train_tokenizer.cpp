// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/train_tokenizer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "skein/core/error.h"
#include "skein/core/progress.h"
#include "skein/text/bpe_trainer.h"
#include "skein/text/bpe_word_count.h"
#include "skein/text/parts/unicode.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {
namespace {

constexpr int64_t kMaxVocabSize = 1'000'000;

// A live line of the vocabulary's size, on terminals only.
class MergeLine {
 public:
  explicit MergeLine(int64_t vocab_size)
      : vocab_size_(vocab_size), is_terminal_(isatty(STDERR_FILENO) == 1) {}
  ~MergeLine() {
    if (is_shown_) fmt::print(stderr, "\r\033[K");
  }

  void show(int64_t size) {
    if (!is_terminal_ || std::chrono::steady_clock::now() < next_) return;
    next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    is_shown_ = true;
    fmt::print(stderr, "\rmerging: {} of {} tokens", size, vocab_size_);
  }

 private:
  int64_t vocab_size_;
  bool is_terminal_;
  bool is_shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

// Weights know the ids of the tokenizer that they were trained with.
void refuse_occupied(const fs::path& out) {
  for (const auto* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "model.safetensors",
                           "model.safetensors.index.json", "pytorch_model.bin"}) {
    if (std::error_code ignored; !fs::exists(out / name, ignored)) continue;
    throw UserError(
        fmt::format("--out {}: it holds {}, which would no longer fit; give another folder, or "
                    "--overwrite",
                    out.string(), name));
  }
}

void check(const TokenizerTrainOptions& options) {
  if (options.inputs.empty()) throw UserError("skein tokenizer train needs --input F…");
  if (options.out.empty()) throw UserError("skein tokenizer train needs --out DIR");
  if (options.vocab_size < 1 || options.vocab_size > kMaxVocabSize) {
    throw UserError(
        fmt::format("skein tokenizer train needs --vocab-size N, from 257 to {}", kMaxVocabSize));
  }
  if (!options.overwrite) refuse_occupied(options.out);
  for (const auto& token : options.special_tokens) {
    if (token.empty() || valid_utf8_prefix(token) < token.size()) {
      throw UserError("--special-token must be text in UTF-8, not empty");
    }
    // Alone in its pre-token, a byte's spelling would be this token and the byte at once.
    if (token.size() < 3) {
      throw UserError(
          fmt::format("--special-token '{}' is too short: three bytes at least", token));
    }
  }
}

std::vector<WordCount> count(const TokenizerTrainOptions& options) {
  uint64_t bytes = 0;
  std::error_code ignored;  // a missing file is named by count_words
  for (const auto& path : options.inputs) {
    if (const auto size = fs::file_size(path, ignored); !ignored) bytes += size;
  }
  Progress progress(fmt::format("counting words of {} files", options.inputs.size()), bytes);
  auto words =
      count_words(options.inputs, {options.threads, [&](uint64_t read) { progress.add(read); }});
  if (words.empty()) throw UserError("--input holds no text: nothing to learn from");
  return words;
}

TrainedBpe train(const std::vector<WordCount>& words, const TokenizerTrainOptions& options) {
  MergeLine line(options.vocab_size);
  BpeTrainerOptions trainer{.vocab_size = options.vocab_size,
                            .min_frequency = options.min_frequency,
                            .special_tokens = {kEndOfText},
                            .progress = [&](int64_t size) { line.show(size); }};
  trainer.special_tokens.insert(trainer.special_tokens.end(), options.special_tokens.begin(),
                                options.special_tokens.end());
  return train_bpe(words, trainer);
}

}  // namespace

TokenizerTrainSummary train_tokenizer(const TokenizerTrainOptions& options) {
  check(options);
  const auto words = count(options);
  const auto trained = train(words, options);
  make_directories(options.out);
  write_file_atomically(options.out / "tokenizer.json", to_tokenizer_json(trained));
  write_file_atomically(options.out / "tokenizer_config.json", to_tokenizer_config_json(trained));
  TokenizerTrainSummary summary{.vocab_size = std::ssize(trained.vocabulary),
                                .num_merges = std::ssize(trained.merges),
                                .num_unique_words = std::ssize(words)};
  for (const auto& word : words) summary.num_words += word.count;
  return summary;
}

}  // namespace skein::text
