// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which patterns of a tokenizer.json do we take, and what do they mean to PCRE2?
//
// The files are written for Oniguruma. The subset below has one meaning in both engines once \s and
// \S are spelled out (PCRE2 counts U+180E as white space); everything else is refused by name.
//
//   literals, [classes] with ranges and ^, |, ( ), (?: ), (?i: ), (?i) at the start, (?> ), (?= ),
//   (?! )
//   * + ? {n} {n,} {n,m}, lazy or possessive; \s \S \d \r \n \t \f \v \uHHHH, escaped punctuation
//   \p{..} \P{..} of a general category or of the scripts Han, Hiragana, Katakana, Hangul
//
// A repeated group may not hold a repetition: what is left needs polynomial time at worst, and the
// match limit of pretokenizer.h ends that.

#include <string>
#include <string_view>

namespace skein::text {

// Throws UserError that quotes the refused construct and its place.
std::string to_pcre2_pattern(std::string_view pattern);

// A pattern that matches `literal` and nothing else.
std::string quoted_pattern(std::string_view literal);

}  // namespace skein::text
