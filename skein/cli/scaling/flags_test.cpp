// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/scaling/flags.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::cli {
namespace {

using Words = std::vector<std::string>;

std::string refusal_of(const Words& words) {
  return refusal<UserError>([&] { parse_scaling_flags(words); });
}

TEST(ScalingFlags, HaveDefaults) {
  const auto flags = parse_scaling_flags(Words{"model"});
  EXPECT_EQ(flags.model, "model");
  EXPECT_TRUE(flags.ranks.empty());
  EXPECT_EQ(flags.strategies.size(), 4U);
  EXPECT_EQ(flags.rounds, 1);
}

TEST(ScalingFlags, ReadLists) {
  const auto flags =
      parse_scaling_flags(Words{"model", "--ranks=1,4", "--strategies", "zero3,ddp,zero3"});
  EXPECT_EQ(flags.ranks, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(flags.strategies, (std::vector{config::Strategy::kZero3, config::Strategy::kDdp}));
}

TEST(ScalingFlags, RefuseWhatMakesNoSense) {
  EXPECT_PRED2(contains, refusal_of({}), "one MODEL folder, not 0");
  for (const char* ranks : {"--ranks=0", "--ranks=-1", "--ranks=2x", "--ranks=1,,2"}) {
    EXPECT_PRED2(contains, refusal_of({"model", ranks}), "is no number of ranks");
  }
  EXPECT_PRED2(contains, refusal_of({"model", "--strategies=auto"}), "'auto' is none of");
  EXPECT_PRED2(contains, refusal_of({"model", "--steps=0"}), "--steps");
}

}  // namespace
}  // namespace skein::cli
