// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/worlds.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"

namespace skein::plan {
namespace {

std::vector<int64_t> sizes(const WorldShape& launch, const std::vector<int64_t>& asked = {}) {
  std::vector<int64_t> found;
  for (const auto& world : worlds_within(launch, asked)) found.push_back(world.size());
  return found;
}

TEST(Worlds, DivideANodeOrTakeWholeOnes) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes({1, 1}), (Sizes{1}));
  EXPECT_EQ(sizes({1, 6}), (Sizes{1, 2, 3, 6}));
  EXPECT_EQ(sizes({2, 4}), (Sizes{1, 2, 4, 8}));
  EXPECT_EQ(sizes({4, 3}), (Sizes{1, 3, 6, 12}));
  EXPECT_EQ(worlds_within({4, 3})[2].nodes, 2);
}

TEST(Worlds, ThoseThatAreAskedForAndNoOthers) {
  EXPECT_EQ(sizes({1, 4}, {4, 1, 4}), (std::vector<int64_t>{1, 4}));
  EXPECT_THROW(sizes({1, 4}, {3}), UserError);
  EXPECT_THROW(sizes({1, 4}, {8}), UserError);
  EXPECT_THROW(sizes({4, 3}, {2}), UserError);  // neither a divisor of three nor whole nodes
}

}  // namespace
}  // namespace skein::plan
