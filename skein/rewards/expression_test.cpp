// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/expression.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace skein::rewards {
namespace {

std::string value_of(std::string_view text) {
  const auto result = evaluate(text);
  if (!result) return "none";
  return fmt::format("{}/{} of {}", result->value.numerator, result->value.denominator,
                     result->numbers.size());
}

TEST(Evaluate, SumsAndProductsInTheirOrder) {
  EXPECT_EQ(value_of("1 + 2 * 3"), "7/1 of 3");
  EXPECT_EQ(value_of("(1 + 2) * 3"), "9/1 of 3");
  EXPECT_EQ(value_of("10 - 4 - 3"), "3/1 of 3");
  EXPECT_EQ(value_of("8 / (3 - 8 / 3)"), "24/1 of 4");  // exact, where floats are not
  EXPECT_EQ(value_of("-(2 - 5)"), "3/1 of 2");
  EXPECT_EQ(value_of("2 × 3 ÷ 4 \u2212 1"), "1/2 of 4");
  EXPECT_EQ(value_of("2 \\times 3 \\div 4 \\cdot 2"), "3/1 of 4");
  EXPECT_EQ(value_of("1,000 + .5"), "2001/2 of 2");
}

TEST(Evaluate, NothingElse) {
  for (const std::string_view text :
       {"", "()", "1 +", "* 1", "1 2", "(1", "1)", "1 ** 2", "2^3", "x", "1; 2", "__import__('os')",
        "1 / 0", "1 / (2 - 2)", "9223372036854775807", "999999999999999999 * 999999999999999999",
        "1e18 + 1e18 + 1e18 + 1e18 + 1e18 + 1e18 + 1e18 + 1e18 + 1e18 + 1e18"}) {
    EXPECT_EQ(value_of(text), "none") << text;
  }
}

TEST(Evaluate, LimitsOfLengthAndDepth) {
  const auto nested = [](int depth) {
    return std::string(depth, '(') + "1" + std::string(depth, ')');
  };
  EXPECT_EQ(value_of(nested(40)), "1/1 of 1");
  EXPECT_EQ(value_of(nested(60)), "none");
  EXPECT_EQ(value_of(std::string(60, '-') + "1"), "none");
  EXPECT_EQ(value_of(nested(1'000'000)), "none");
  EXPECT_EQ(value_of("1" + std::string(1000, ' ')), "none");
}

}  // namespace
}  // namespace skein::rewards
