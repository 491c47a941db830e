// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Cuts text at the matches of a pattern: Split, and the parts that are one with a pattern of their
// own (Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit).

#include <memory>

#include "skein/text/parts/pattern.h"
#include "skein/text/parts/pre_tokenizer.h"

namespace skein::text {

// What becomes of the matches. With `invert` the gaps between matches take their place.
enum class SplitBehavior {
  kRemoved,
  kIsolated,            // a piece each
  kMergedWithPrevious,  // joined to the gap before
  kMergedWithNext,      // joined to the gap after
  kContiguous,          // neighbouring matches are one piece
};

class Split final : public PreTokenizer {
 public:
  struct Options {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
  };
  explicit Split(Pattern pattern) : Split(std::move(pattern), Options()) {}
  Split(Pattern pattern, Options options);

  void split(const Piece& piece, Pieces& pieces, Workspace& workspace) const override;

 private:
  void take(const Piece& piece, TokenSpan part, bool is_match, Pieces& pieces) const;
  void split_and_join(const Piece& piece, Pieces& pieces) const;

  Pattern pattern_;
  Options options_;
};

std::unique_ptr<PreTokenizer> read_split(const PartReader& reader, const Json& json);
std::unique_ptr<PreTokenizer> read_digits(const PartReader& reader, const Json& json);
std::unique_ptr<PreTokenizer> read_punctuation(const PartReader& reader, const Json& json);
std::unique_ptr<PreTokenizer> read_whitespace(const PartReader& reader, const Json& json);
std::unique_ptr<PreTokenizer> read_whitespace_split(const PartReader& reader, const Json& json);
std::unique_ptr<PreTokenizer> read_delimiter(const PartReader& reader, const Json& json);

}  // namespace skein::text
