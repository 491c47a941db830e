// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/random.h"

#include <gtest/gtest.h>

#include <set>

namespace skein::random {
namespace {

// Known answers of Philox 4x32-10 (the published test vectors of the Random123 paper).
TEST(Philox, KnownAnswers) {
  const auto zero = philox(0, 0, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5U);
  EXPECT_EQ(zero.word[1], 0xe169c58dU);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cU);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8U);
  const auto ones = philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(ones.word[0], 0x408f276dU);
  EXPECT_EQ(ones.word[3], 0x6d5451fdU);
}

TEST(Mix, SeparatesNeighbouringNames) {
  std::set<uint64_t> seen;
  for (uint64_t key = 0; key < 64; ++key) {
    for (uint64_t part = 0; part < 64; ++part) seen.insert(mix(key, part));
  }
  EXPECT_EQ(seen.size(), 64U * 64U);
}

TEST(ToUnit, StaysBelowOne) {
  EXPECT_EQ(to_unit(0), 0.0F);
  EXPECT_LT(to_unit(~0U), 1.0F);
}

}  // namespace
}  // namespace skein::random
