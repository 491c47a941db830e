// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/cuts.h"

#include <gtest/gtest.h>

#include <string>

#include "skein/text/parts/byte_level.h"

namespace skein::text {
namespace {

TEST(Cuts, ASafePlaceIsKnownByItsNeighbours) {
  const auto is_cut = [](std::string_view left, std::string_view right) {
    return is_safe_cut(std::string(left) + std::string(right), left.size());
  };
  EXPECT_TRUE(is_cut("a", " b"));
  EXPECT_TRUE(is_cut("a", "  b"));
  EXPECT_TRUE(is_cut("a.\n", "b"));
  EXPECT_TRUE(is_cut("\u3002\n", "\u4e2d"));
  EXPECT_FALSE(is_cut("a ", "b"));
  EXPECT_FALSE(is_cut("1", " b"));
  EXPECT_FALSE(is_cut(".", " b"));
  EXPECT_FALSE(is_cut("a\n\n", "b"));
  EXPECT_FALSE(is_cut("a\n", " b"));
  EXPECT_FALSE(is_cut("a", "\nb"));
  EXPECT_FALSE(is_cut("\u3000\n", "b"));
  EXPECT_FALSE(is_cut("a\n", "\u3000"));
  EXPECT_FALSE(is_cut("a\n", ""));
  EXPECT_FALSE(is_cut("", " a"));
}

TEST(Cuts, ALineEndWinsOverAWord) {
  const std::string text = "one two three.\nfour five";
  EXPECT_EQ(find_safe_cut(text, 0), 15u);
  EXPECT_EQ(find_safe_cut(text, 16), 19u);
  EXPECT_EQ(find_safe_cut(text, 20), std::nullopt);
}

TEST(Cuts, KnownPatternsAreKnownByEveryCharacter) {
  EXPECT_TRUE(has_safe_cuts(kGpt2Pattern));
  EXPECT_FALSE(has_safe_cuts(std::string(kGpt2Pattern) + "|a b"));
  EXPECT_FALSE(has_safe_cuts(""));
}

}  // namespace
}  // namespace skein::text
