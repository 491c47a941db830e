// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which patterns of a tokenizer.json do we take, and what do they mean to PCRE2?
//
// The files are written for Oniguruma. The subset below has one meaning in both engines once it is
// translated; everything else is refused by name.
//
//   literals, ., |, ( ), (?: ), (?i: ), (?i) at the start, (?> ), (?= ), (?! ), (?<= ), (?<! )
//   [classes] with ranges, ^, classes inside and &&
//   ^ $ (of lines) \A \z \Z (of the text) \b \B
//   * + ? {n} {n,} {n,m} {,m}, lazy or possessive ({..}+ repeats what {..} repeats)
//   \s \S \d \D \w \W \r \n \t \f \v \uHHHH \x{H..} \xHH, escaped punctuation
//   \p{..} \P{..} of a general category or of a script in pattern_syntax.cpp
//
// Time is bounded by pattern.h.

#include <string>
#include <string_view>

namespace skein::text {

struct Pcre2Pattern {
  std::string text;
  // A repetition holds another one: a match may try a number of ways that grows exponentially.
  bool is_nested = false;
};

// Throws UserError that quotes the refused construct and its place.
Pcre2Pattern to_pcre2_pattern(std::string_view pattern);

}  // namespace skein::text
