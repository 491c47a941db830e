// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/pattern.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::text {
namespace {

using Words = std::vector<std::string>;

Words matches(std::string_view expression, std::string_view text) {
  const Pattern pattern(expression);
  Pattern::Search search(pattern, text);
  Words words;
  while (const auto match = search.next()) {
    words.emplace_back(text.substr(match->begin, match->end - match->begin));
  }
  return words;
}

TEST(Pattern, ClassesInsideClasses) {
  EXPECT_EQ(matches("[a[b-d]]+", "xabcdx"), (Words{"abcd"}));
  EXPECT_EQ(matches("[^a[b-d]]+", "xabcdy"), (Words{"x", "y"}));
  EXPECT_EQ(matches("[a[^x]]", "xa\n"), (Words{"a", "\n"}));
  EXPECT_EQ(matches("[[a]^b]+", "x^ab"), (Words{"^ab"}));
  EXPECT_EQ(matches("[^\\S\\n]+", "a \t\nb"), (Words{" \t"}));
  // BLOOM's: brackets and bars are members, the inner class too.
  EXPECT_EQ(matches(" ?[^(\\s|[.,])]+", "a b.c|d"), (Words{"a", " b", "c", "d"}));
}

TEST(Pattern, ClassesWithAndBetween) {
  EXPECT_EQ(matches("[a-z&&[^aeiou]]+", "hello"), (Words{"h", "ll"}));
  EXPECT_EQ(matches("[^a-z&&[^aeiou]]+", "hello"), (Words{"e", "o"}));
  EXPECT_EQ(matches("[\\p{L}\\p{M}&&[^\\p{Han}]]+", "ab中c"), (Words{"ab", "c"}));
  EXPECT_EQ(matches("[a-z&&c-x&&[^d]]+", "abcde"), (Words{"c", "e"}));
}

TEST(Pattern, Places) {
  EXPECT_EQ(matches("^a|b$", "ab\nab"), (Words{"a", "b", "a", "b"}));
  EXPECT_EQ(matches("\\Aa|b\\z", "ab\nab"), (Words{"a", "b"}));
  EXPECT_EQ(matches("\\b[a-c]", "ab cé éc"), (Words{"a", "c"}));
  EXPECT_EQ(matches("(?<=a)b|(?<!a)c", "abcac"), (Words{"b", "c"}));
  EXPECT_EQ(matches("a.", "ab a\n"), (Words{"ab"}));
}

TEST(Pattern, Repetitions) {
  EXPECT_EQ(matches("a++b|a+", "aab aac"), (Words{"aab", "aa"}));
  EXPECT_EQ(matches("[0-9]{1,3}+", "12345"), (Words{"12345"}));  // repeated, not possessive
  EXPECT_EQ(matches("xa{2}?", "xa xaa"), (Words{"x", "xaa"}));   // optional, not lazy
  EXPECT_EQ(matches("xa{1,2}?", "xaa"), (Words{"xa"}));
  EXPECT_EQ(matches("xa{,2}", "x xaaa"), (Words{"x", "xaa"}));
  EXPECT_EQ(matches("(?:[a-z]+ ?)+", "ab cd, e"), (Words{"ab cd", "e"}));
}

// One at the end of a match does not count.
TEST(Pattern, EmptyMatches) {
  EXPECT_EQ(matches("(?=b)|c", "abc"), (Words{"", "c"}));
  EXPECT_EQ(matches("a*", "baac"), (Words{"", "aa", ""}));
}

TEST(Pattern, Numbers) {
  EXPECT_EQ(matches("[\\u4e00-\\u9fa5]+|\\x{1F600}|\\x41", "中文😀A"), (Words{"中文", "😀", "A"}));
}

TEST(Pattern, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_EQ(matches("\\s|\\S+", "!\u180E!"), (Words{"!\u180E!"}));
}

TEST(Pattern, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"a++*", "a repetition of a repetition"},
      {"(a)\\1", "'\\1'"},
      {"(?<n>a)", "the group '(?<n'"},
      {"\\K", "'\\K'"},
      {"[[:alpha:]]", "a POSIX class"},
      {"[a&&]", "an empty class"},
      {"[]", "an empty class"},
      {"^*", "a repetition of a place"},
      {"a{5000}", "1000"},
      {"a{,}", "an unusual '{'"},
      {"\\p{Klingon}", "\\p{Klingon}"},
      {"\\xE4", "beyond 7F"},
      {"[a", "without its ]"},
      {"(a", "without its )"},
      {"a)", "without its ("},
      {"a\\", "at the end"},
      {"b(?i)a", "the group '(?i)'"},
      {"[b-a]", "cannot be compiled"},
      {"(?<=a+)b", "cannot be compiled"},
  };
  for (const auto& [pattern, reason] : cases) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { Pattern{pattern}; }), reason) << pattern;
  }
  EXPECT_THROW(Pattern(std::string(5000, 'a')), UserError);
  EXPECT_THROW(Pattern(std::string(100, '(') + "a" + std::string(100, ')')), UserError);
  EXPECT_THROW(Pattern(std::string(100, '[') + "a" + std::string(100, ']')), UserError);
}

TEST(Pattern, GivesUpInsteadOfBacktrackingForHours) {
  EXPECT_THROW(matches("a*a*a*a*a*a*[bc]", std::string(3000, 'a')), UserError);
  EXPECT_THROW(matches("(?:a+)+[bc]", std::string(3000, 'a')), UserError);
  // Each match is cheap, but looks at all that follows.
  EXPECT_THROW(matches("a*[bc]|a", std::string(200'000, 'a')), UserError);
}

}  // namespace
}  // namespace skein::text
