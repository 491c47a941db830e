// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/known_patterns.h"

#include <gtest/gtest.h>

#include <vector>

#include "skein/core/random.h"
#include "skein/text/parts/pattern.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

std::vector<TokenSpan> matches(const Pattern& pattern, std::string_view text) {
  std::vector<TokenSpan> found;
  Pattern::Search search(pattern, text);
  while (const auto match = search.next()) found.push_back(*match);
  return found;
}

// Pieces that the patterns tell apart, behind each other.
std::string random_text(uint64_t key) {
  static const std::vector<std::string> pieces = {" ",
                                                  " ",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\r",
                                                  "\t",
                                                  "\r\n",
                                                  "\n\n",
                                                  "\u00a0",
                                                  "\u3000",
                                                  "\u180e",
                                                  "\u2028",
                                                  "\u0085",
                                                  "\u200b",
                                                  "\x0b",
                                                  "\x1c",
                                                  "\ufeff",
                                                  "'s",
                                                  "'S",
                                                  "'ſ",
                                                  "'t",
                                                  "'re",
                                                  "'LL",
                                                  "'Ve",
                                                  "'",
                                                  "’s",
                                                  "'m",
                                                  "'D",
                                                  "'l",
                                                  "'r",
                                                  "a",
                                                  "bc",
                                                  "Z",
                                                  "XY",
                                                  "é",
                                                  "e\u0301",
                                                  "\u0301",
                                                  "ǅ",
                                                  "ʰ",
                                                  "ß",
                                                  "中",
                                                  "文字",
                                                  "龥",
                                                  "龦",
                                                  "ひ",
                                                  "カ",
                                                  "ー",
                                                  "가",
                                                  "अनुच्छेद",
                                                  "ไทย",
                                                  "Я",
                                                  "1",
                                                  "23",
                                                  "4567",
                                                  "½",
                                                  "٣",
                                                  "Ⅷ",
                                                  "²",
                                                  "_",
                                                  "<",
                                                  "|",
                                                  "$",
                                                  "+",
                                                  "-",
                                                  "/",
                                                  "//",
                                                  "...",
                                                  "!?",
                                                  "😀",
                                                  "👩‍👩‍👧",
                                                  "。",
                                                  "，",
                                                  "€",
                                                  "`",
                                                  "^",
                                                  "\\",
                                                  "[",
                                                  "]",
                                                  std::string(1, '\0'),
                                                  "\x7f",
                                                  "\U0010FFFF",
                                                  "\U00011F02"};
  std::string text;
  const uint32_t count = random::philox(key, 0).word[0] % 40;
  for (uint32_t i = 1; i <= count; ++i) {
    text += pieces[random::philox(key, i).word[0] % pieces.size()];
  }
  return text;
}

class KnownPatterns : public testing::TestWithParam<KnownPattern> {
 protected:
  const Pattern by_hand{GetParam().expression};
  const Pattern by_pcre2{GetParam().expression, Pattern::Engine::kPcre2};
};

TEST_P(KnownPatterns, MatchWherePcre2Does) {
  for (uint64_t key = 0; key < 5000; ++key) {
    const auto text = random_text(key);
    ASSERT_EQ(matches(by_hand, text), matches(by_pcre2, text)) << text << " of key " << key;
  }
}

TEST_P(KnownPatterns, MatchEveryCharacterWherePcre2Does) {
  for (const std::string_view behind : {"", "a", "\n"}) {
    std::string text;
    for (char32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      if (code >= 0x20000 && code % 16 != 0) continue;  // little is assigned there
      (text += to_utf8(code)) += behind;
      if (text.size() < 4096) continue;
      ASSERT_EQ(matches(by_hand, text), matches(by_pcre2, text)) << "before " << uint32_t{code};
      text.clear();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KnownPatterns, testing::ValuesIn(known_patterns()));

TEST(KnownPatternsByName, AreFoundByTheirExactText) {
  EXPECT_NE(known_finder(R"(\p{N}+)"), nullptr);
  EXPECT_EQ(known_finder(R"(\p{N}++)"), nullptr);
}

}  // namespace
}  // namespace skein::text
