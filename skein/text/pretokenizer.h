// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where may tokens never reach across? A text is cut into pre-tokens before byte pairs are merged.
//
// Thread-safe once built.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text {

// What a Split step does with the matches of its pattern and with the gaps between them.
enum class SplitBehavior {
  kIsolated,      // both become pieces
  kKeepsMatches,  // gaps are dropped
  kKeepsGaps,     // matches are dropped
};

// Cuts text at the matches of one pattern.
class Splitter {
 public:
  // `pattern` in the subset of pretokenizer_pattern.h. Throws UserError when it is not, when PCRE2
  // cannot compile it, and when it matches the empty string.
  explicit Splitter(std::string_view pattern, SplitBehavior behavior = SplitBehavior::kIsolated);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  // Appends the pieces of `text` (valid UTF-8), which are views into it, in order. Throws UserError
  // when a match needs more than kMatchLimit backtracking steps, or the text takes more than half
  // a second and 2 microseconds per byte (many times what the known patterns need).
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  static constexpr unsigned kMatchLimit = 50'000'000;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  SplitBehavior behavior_;
};

// The pattern of GPT-2, which the pre-tokenizer "ByteLevel" brings along.
extern const char* const kGpt2Pattern;

// The steps of a tokenizer in order: splits, then at last a space before every piece that begins
// with none (add_prefix_space), then GPT-2's split.
struct PreTokenizerOptions {
  std::vector<Splitter> splits;
  bool add_prefix_space = false;
  bool gpt2_split = true;
};

class PreTokenizer {
 public:
  explicit PreTokenizer(PreTokenizerOptions options);

  // Calls take(std::string_view) with every pre-token of `text` (valid UTF-8), in order. The views
  // end with the call.
  template <typename Take>
  void for_each(std::string_view text, Take take) const {
    Pieces pieces;
    split(text, pieces);
    for (const auto piece : pieces.views) take(piece);
  }

 private:
  struct Pieces {
    std::vector<std::string_view> views;
    std::deque<std::string> owned;  // of views that begin with an added space
  };
  void split(std::string_view text, Pieces& pieces) const;
  static void apply(const Splitter& splitter, Pieces& pieces);
  static void add_spaces(Pieces& pieces);

  PreTokenizerOptions options_;
  std::optional<Splitter> gpt2_;
};

}  // namespace skein::text
