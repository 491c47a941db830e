// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/blocks.h"

#include <vector>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/block_source.h"
#include "skein/data/test_files.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {
namespace {

TEST(Blocks, TailIsShortAndASingleTokenIsDropped) {
  const Blocks whole(12, 4), tail(14, 4), single(13, 4), one(3, 100);
  EXPECT_EQ(whole.count(), 3);
  EXPECT_EQ(tail.count(), 4);
  EXPECT_EQ(tail.block(3).begin, 12);
  EXPECT_EQ(tail.block(3).length, 2);
  EXPECT_EQ(tail.block(3).num_targets(), 1);
  EXPECT_EQ(single.count(), 3);
  EXPECT_EQ(one.count(), 1);
  EXPECT_EQ(one.block(0).length, 3);
}

TEST(Blocks, SizeOneIsRefused) { EXPECT_THROW(Blocks(10, 1), UserError); }

using BlockSourceTest = TemporaryFolder;

TEST_F(BlockSourceTest, APositionPredictsTheNextTokenOfItsBlock) {
  const TokenRegion region{.path = write("a", bytes_of_words<uint16_t>({7, 8, 9, 10, 11})),
                           .count = 5};
  const TokenArray tokens(std::span(&region, 1));
  const BlockSource source(tokens, 3);
  ASSERT_EQ(source.count(), 2);
  EXPECT_EQ(source.length(1), 2);
  EXPECT_EQ(source.num_targets(0), 2);
  EXPECT_EQ(source.num_targets(1), 1);
  std::vector<int64_t> ids(3), targets(3);
  source.read(0, ids, targets);
  EXPECT_EQ(ids, (std::vector<int64_t>{7, 8, 9}));
  EXPECT_EQ(targets, (std::vector<int64_t>{8, 9, tensor::kIgnore}));
  EXPECT_THROW(source.read(1, ids, targets), InternalError) << "two tokens, not three";
}

}  // namespace
}  // namespace skein::data
