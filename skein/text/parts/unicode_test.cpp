// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/unicode.h"

#include <gtest/gtest.h>

namespace skein::text {
namespace {

std::string nfc(std::string_view text) { return to_normal_form(text, NormalForm::kNfc); }

TEST(Unicode, ReplacesMaximalInvalidSequences) {
  EXPECT_EQ(repaired_utf8("a\xE2\x82z"), "a\uFFFDz");              // one, for two bytes
  EXPECT_EQ(repaired_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(repaired_utf8("\xC0\x80\xF5"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(repaired_utf8("é中😀"), "é中😀");
}

TEST(Unicode, ComposesAndOrdersMarks) {
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("a\u0301\u0316"), nfc("a\u0316\u0301"));
  std::string mixed = "a", ordered = "a";
  for (int i = 0; i < 100; ++i) mixed += "\u0301\u0316";
  for (int i = 0; i < 100; ++i) ordered += "\u0316";
  for (int i = 0; i < 100; ++i) ordered += "\u0301";
  EXPECT_EQ(nfc(mixed), nfc(ordered));
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(to_normal_form("éﬁ", NormalForm::kNfd), "e\u0301ﬁ");
  EXPECT_EQ(to_normal_form("éﬁ", NormalForm::kNfkd), "e\u0301fi");
  EXPECT_EQ(to_normal_form("e\u0301ﬁ", NormalForm::kNfkc), "éfi");
  EXPECT_EQ(decomposition(U'é', NormalForm::kNfd), U"e\u0301");
  EXPECT_EQ(decomposition(U'ﬁ', NormalForm::kNfd), U"ﬁ");
  EXPECT_EQ(composition(U'e', 0x301), U'é');
  EXPECT_EQ(composition(0x1100, 0x1161), U'가');
  EXPECT_EQ(composition(U'e', U'e'), std::nullopt);
}

TEST(Unicode, SettledCharactersStayAsTheyAreInNfc) {
  size_t settled = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const auto parts = decomposition(code, NormalForm::kNfc);
    for (size_t i = 1; i < parts.size(); ++i) {
      EXPECT_FALSE(is_settled(parts[i])) << "joins what stands before it: " << uint32_t{parts[i]};
    }
    if (!is_settled(code)) continue;
    ++settled;
    EXPECT_EQ(combining_class(code), 0) << uint32_t{code};
    EXPECT_EQ(to_normal_form(to_utf8(code), NormalForm::kNfc), to_utf8(code)) << uint32_t{code};
  }
  EXPECT_GT(settled, 40'000);
  EXPECT_TRUE(is_settled("a中文, é가😀。"));
  EXPECT_FALSE(is_settled("中文e\u0301"));
}

}  // namespace
}  // namespace skein::text
