// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/pretokenizer.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/pretokenizer_pattern.h"
#include "skein/text/unicode.h"

namespace skein::text {
namespace {

using Words = std::vector<std::string>;

Words words_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Words words;
  pre_tokenizer.for_each(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words split_by(std::string_view pattern, std::string_view text,
               SplitBehavior behavior = SplitBehavior::kIsolated) {
  std::vector<std::string_view> pieces;
  Splitter(pattern, behavior).split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(PreTokenizer, SplitsAsGpt2Does) {
  const PreTokenizer pre_tokenizer({});
  EXPECT_EQ(words_of(pre_tokenizer, "It's 12 cats,\n\n  né?"),
            (Words{"It", "'s", " 12", " cats", ",", "\n\n ", " né", "?"}));
  EXPECT_EQ(words_of(pre_tokenizer, ""), Words{});
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_EQ(words_of(PreTokenizer({}), "!\u180E!"), (Words{"!\u180E!"}));
}

TEST(PreTokenizer, AddsASpaceInFront) {
  PreTokenizerOptions options;
  options.add_prefix_space = true;
  const PreTokenizer pre_tokenizer(std::move(options));
  EXPECT_EQ(words_of(pre_tokenizer, "a b"), (Words{" a", " b"}));
  EXPECT_EQ(words_of(pre_tokenizer, " a"), (Words{" a"}));
}

TEST(Splitter, KeepsWhatItIsAskedFor) {
  EXPECT_EQ(split_by("[0-9]+", "a12b3"), (Words{"a", "12", "b", "3"}));
  EXPECT_EQ(split_by("[0-9]+", "a12b3", SplitBehavior::kKeepsMatches), (Words{"12", "3"}));
  EXPECT_EQ(split_by("[0-9]+", "a12b3", SplitBehavior::kKeepsGaps), (Words{"a", "b"}));
  EXPECT_EQ(split_by(quoted_pattern("a.b"), "a.baxb"), (Words{"a.b", "axb"}));
}

TEST(Splitter, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a+)+b", "a repetition inside a repetition"},
      {"(?:a{2,})*", "a repetition inside a repetition"},
      {"a++*", "a repetition of a repetition"},
      {"(?<=a)b", "the group '(?<='"},
      {"(a)\\1", "'\\1'"},
      {"\\w+", "'\\w'"},
      {"[a&&b]", "'&&'"},
      {"[[:alpha:]]", "a class inside a class"},
      {"a.b", "'.'"},
      {"^a", "'^'"},
      {"a{1,3}+", "'+' after '{..}'"},
      {"a{5000}", "1000"},
      {"\\p{Greek}", "\\p{Greek}"},
      {"[a", "without its ]"},
      {"(a", "without its )"},
      {"a)", "without its ("},
      {"a\\", "at the end"},
      {"b(?i)a", "the group '(?i)'"},
      {"a*", "matches the empty string"},
      {"[b-a]", "cannot be compiled"},
  };
  for (const auto& [pattern, reason] : cases) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { Splitter{pattern}; }), reason) << pattern;
  }
  EXPECT_THROW(Splitter(std::string(5000, 'a')), UserError);
  EXPECT_THROW(Splitter(std::string(100, '(') + "a" + std::string(100, ')')), UserError);
}

TEST(Splitter, GivesUpInsteadOfBacktrackingForHours) {
  const Splitter splitter("a*a*a*a*a*a*[bc]");
  std::vector<std::string_view> pieces;
  EXPECT_THROW(splitter.split(std::string(3000, 'a'), pieces), UserError);
  // Each match is cheap, but looks at all that follows.
  const Splitter quadratic("a*[bc]|a");
  EXPECT_THROW(quadratic.split(std::string(200'000, 'a'), pieces), UserError);
}

TEST(TokenizerText, ReplacesMaximalInvalidSequences) {
  EXPECT_EQ(repaired_utf8("a\xE2\x82z"), "a\uFFFDz");              // one, for two bytes
  EXPECT_EQ(repaired_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(repaired_utf8("\xC0\x80\xF5"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(repaired_utf8("é中😀"), "é中😀");
}

TEST(TokenizerText, ComposesAndOrdersMarks) {
  EXPECT_EQ(to_nfc("e\u0301"), "é");
  EXPECT_EQ(to_nfc("a\u0301\u0316"), to_nfc("a\u0316\u0301"));
  std::string mixed = "a", ordered = "a";
  for (int i = 0; i < 100; ++i) mixed += "\u0301\u0316";
  for (int i = 0; i < 100; ++i) ordered += "\u0316";
  for (int i = 0; i < 100; ++i) ordered += "\u0301";
  EXPECT_EQ(to_nfc(mixed), to_nfc(ordered));
}

}  // namespace
}  // namespace skein::text
