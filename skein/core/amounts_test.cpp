// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/amounts.h"

#include <gtest/gtest.h>

#include <limits>

namespace skein {
namespace {

TEST(Amounts, BytesHaveBinaryUnits) {
  EXPECT_EQ(shown_bytes(0), "0 B");
  EXPECT_EQ(shown_bytes(1023), "1023 B");
  EXPECT_EQ(shown_bytes(1024), "1.0 KiB");
  EXPECT_EQ(shown_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(shown_bytes(uint64_t{1} << 60), "1048576.0 TiB");
}

TEST(Amounts, CountsHaveGroupsOfThree) {
  EXPECT_EQ(shown_count(0), "0");
  EXPECT_EQ(shown_count(999), "999");
  EXPECT_EQ(shown_count(124439808), "124,439,808");
  EXPECT_EQ(shown_count(-100000), "-100,000");
  EXPECT_EQ(shown_count(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Amounts, SharesArePercentages) {
  EXPECT_EQ(shown_share(851968, 1235814400), "0.069 %");
  EXPECT_EQ(shown_share(1, 1000000), "0.0001 %");
  EXPECT_EQ(shown_share(1, 3), "33.33 %");
  EXPECT_EQ(shown_share(2, 2), "100.00 %");
}

TEST(Amounts, ThingsAreCounted) {
  EXPECT_EQ(counted(0, "file"), "0 files");
  EXPECT_EQ(counted(1, "file"), "1 file");
  EXPECT_EQ(counted(2, "bad line"), "2 bad lines");
}

}  // namespace
}  // namespace skein
