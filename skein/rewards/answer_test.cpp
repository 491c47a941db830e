// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/answer.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::rewards {
namespace {

std::string found(std::string_view text) { return std::string(find_answer(text).value_or("none")); }

std::string found(std::string_view text, AnswerForm form) {
  return std::string(find_answer(text, form).value_or("none"));
}

TEST(FindAnswer, TheLastOfEachForm) {
  using enum AnswerForm;
  EXPECT_EQ(found("2 + 2\n#### 3\nno:\n####  4 \nthat is it", kHashes), "4");
  EXPECT_EQ(found("\\boxed{1} and \\boxed{ 2 }", kBoxed), "2");
  EXPECT_EQ(found("<answer>1</answer> <answer> 2\n</answer>", kTag), "2");
  for (const auto form : {kHashes, kBoxed, kTag}) EXPECT_EQ(found("42", form), "none");
}

TEST(FindAnswer, BracesInABoxAreCounted) {
  EXPECT_EQ(found("\\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(found("\\boxed{\\{1, 2\\}}"), "\\{1, 2\\}");
  EXPECT_EQ(found("\\boxed{\\text{a }\\boxed{5}}"), "\\text{a }\\boxed{5}");  // the outer one
  EXPECT_EQ(found("\\boxed{1} \\boxed{2"), "1");                              // cut off
  EXPECT_EQ(found("} \\boxed{3}} {"), "3");
}

TEST(FindAnswer, ATagGoesBeforeABoxAndABoxBeforeHashes) {
  EXPECT_EQ(found("\\boxed{1} <answer>2</answer> #### 3"), "2");
  EXPECT_EQ(found("#### 3 \\boxed{1}"), "1");
  EXPECT_EQ(found("<answer>so \\boxed{7}</answer>"), "7");
  EXPECT_EQ(found("<answer>1</answer> <answer>2"), "1");  // not closed
  EXPECT_EQ(found("</answer>5<answer>"), "none");
}

TEST(FindAnswer, LargeTwistedTextsTakeOnePass) {
  std::string boxes, braces = "\\boxed{", tags;
  for (int i = 0; i < 200'000; ++i) {
    boxes += "\\boxed{";
    braces += "{";
    tags += "<answer>";
  }
  EXPECT_EQ(found(boxes), "none");
  EXPECT_EQ(found(boxes + "5}"), "5");
  EXPECT_EQ(found(braces), "none");
  EXPECT_EQ(found(tags), "none");
  EXPECT_EQ(after_thinking("a</think>b</think>c"), "c");
}

struct Pair {
  std::string a, b;
};

const std::vector<Pair> kSameNumbers = {
    {"1000", "1,000"},
    {"1000", "1e3"},
    {"1000", "1.0E+3"},
    {"1000", "$1{,}000$"},
    {"1000", "1\\,000"},
    {"12", "$12.00"},
    {"12", "\\$12"},
    {"12", "$12.00."},
    {"12", " +12 "},
    {"12", "x = 12"},
    {"12", "**12**"},
    {"12", "12\\text{ cm}"},
    {"12", "\\text{12}"},
    {"12", "\\(12\\)"},
    {"-12", "\u221212"},
    {"-12", "-$12"},
    {"-12", "$-12"},
    {"0.5", "1/2"},
    {"0.5", ".5"},
    {"0.5", "\\frac{1}{2}"},
    {"0.5", "\\dfrac 12"},
    {"0.5", "\\frac12"},
    {"0.5", "2 / 4"},
    {"-0.5", "-\\frac{1}{2}"},
    {"-0.5", "\\frac{-1}{2}"},
    {"50", "50%"},
    {"50", "50\\%"},
    {"90", "90^\\circ"},
    {"1500", "1.5 \\times 10^{3}"},
    {"1500", "1.5 \\cdot 10^3"},
    {"7", "7."},
    {"0", "-0.0"},
};

TEST(NumberOf, OneNumberInManyWritings) {
  for (const auto& [a, b] : kSameNumbers) {
    EXPECT_TRUE(number_of(a)) << a;
    EXPECT_EQ(number_of(a), number_of(b)) << a << " and " << b;
    EXPECT_TRUE(same_answer(a, b, Compare::kAny)) << a << " and " << b;
  }
}

TEST(NumberOf, OtherNumbersAndWhatIsNone) {
  const std::vector<Pair> different = {{"50%", "0.5"},
                                       {"1,000", "1.000"},
                                       {"1000000000000000001", "1000000000000000002"},
                                       {"0.333", "1/3"},
                                       {"0.1", "0.10000000000000001"},
                                       {"12", "1 2"}};
  for (const auto& [a, b] : different) {
    EXPECT_FALSE(same_answer(a, b, Compare::kAny)) << a << " and " << b;
  }
  for (const std::string text : {"",
                                 "-",
                                 "$",
                                 "1,00",
                                 "1,2345",
                                 "1.2.3",
                                 "1/0",
                                 "\\frac{1}{0}",
                                 "1/",
                                 "e3",
                                 "1e999999999999",
                                 "nan",
                                 "inf",
                                 "0x10",
                                 "12 dollars",
                                 "--1",
                                 "\\frac{1}",
                                 "\\frac{1}{2",
                                 "\\times10^3",
                                 "1\\times10^{",
                                 "9999999999999999999999",
                                 "{",
                                 "\\",
                                 "1\\frac{1}{2}"}) {
    EXPECT_FALSE(number_of(text)) << text;
  }
  EXPECT_FALSE(number_of(std::string(100'000, '1')));
}

TEST(SameAnswer, TextsBarWhatOnlyLooksDifferent) {
  const std::vector<Pair> same = {{"Paris", " Paris.\n"},
                                  {"New  York", "New\nYork"},
                                  {"B", "(B)"},
                                  {"B", "\\text{(B)}"},
                                  {"\\dfrac{\\sqrt{3}}{2}", "\\frac{ \\sqrt{3} }{2}"},
                                  {"$x^2 + 1$", "x^2 + 1"}};
  for (const auto& [a, b] : same) {
    EXPECT_TRUE(same_answer(a, b, Compare::kText)) << a << " and " << b;
  }
  EXPECT_EQ(normal_form("\\left( 1, 2 \\right)"), "(1,2)");
  EXPECT_EQ(normal_form("a \\leftarrow b"), "a\\leftarrowb");
  EXPECT_FALSE(same_answer("Paris", "paris", Compare::kText));
  EXPECT_FALSE(same_answer("1000", "1,000", Compare::kText));
  EXPECT_FALSE(same_answer("Paris", "Paris", Compare::kNumber));
}

TEST(SameAnswer, LongAndTwistedTextsEnd) {
  const std::string dollars(4000, '$'), braces(4000, '{'), slashes(4001, '\\');
  std::string groups;
  for (int i = 0; i < 600; ++i) groups += "\\text{";
  for (const auto& text : {dollars, braces, slashes, groups, groups + std::string(600, '}'),
                           std::string(1 << 20, '*')}) {
    EXPECT_FALSE(same_answer(text, "1", Compare::kAny));
    EXPECT_TRUE(same_answer(text, text, Compare::kAny));
  }
}

}  // namespace
}  // namespace skein::rewards
