// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/disk_rate.h"

#include "skein/core/error.h"
#include "skein/spill/testing.h"

namespace skein::spill {
namespace {

using DiskRateTest = TemporaryFolder;

TEST_F(DiskRateTest, AQuickLookIsBoundedAndLeavesNothing) {
  constexpr uint64_t kBytes = 64 << 20;
  const auto look = look_at_disk(folder_, kBytes);
  EXPECT_GT(look.bytes, 0U);
  EXPECT_LE(look.bytes, kBytes);
  EXPECT_GT(look.rates.read, 0);
  EXPECT_GT(look.rates.write, 0);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DiskRateTest, NoTimeMeansFewBytes) {
  const auto look = look_at_disk(folder_, uint64_t{256} << 20, std::chrono::milliseconds(0));
  EXPECT_EQ(look.bytes, uint64_t{8} << 20);
}

TEST_F(DiskRateTest, AFolderThatIsMissingIsNamed) {
  EXPECT_PRED2(contains, refusal<IoError>([&] { look_at_disk(folder_ / "none"); }),
               "give --path=FOLDER");
}

TEST_F(DiskRateTest, ABenchComparesBothWays) {
  const auto bench = bench_disk({.folder = folder_, .bytes = (8 << 20) + 1, .rounds = 1});
  EXPECT_EQ(bench.bytes, uint64_t{9} << 20);
  EXPECT_DOUBLE_EQ(bench.share.read, bench.spill.read / bench.raw.read);
  EXPECT_DOUBLE_EQ(bench.share.write, bench.spill.write / bench.raw.write);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace skein::spill
