// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/shard_layout.h"

#include <gtest/gtest.h>

namespace skein::tensor {
namespace {

ParameterTable three_units(at::Tensor* slot) {
  ParameterTable table;
  const int root = table.add_unit("root", true);
  const int block = table.add_unit("block");
  table.add({.name = "embed", .shape = {7, 5}, .padded_rows = 64, .unit = root, .slot = slot});
  table.add({.name = "norm", .shape = {5}, .unit = block, .decay = false, .slot = slot});
  table.add({.name = "weight", .shape = {130}, .unit = block, .slot = slot});
  table.add({.name = "frozen", .shape = {3}, .unit = block, .trainable = false, .slot = slot});
  return table;
}

TEST(ShardLayout, EverythingIsAlignedAndNothingOverlaps) {
  at::Tensor slot;
  const auto table = three_units(&slot);
  for (const int ranks : {1, 2, 3, 7}) {
    const auto segments = lay_out(table, ranks);
    ASSERT_EQ(segments.size(), 3U);
    for (const auto& segment : segments) {
      EXPECT_EQ(segment.shard_size % kFlatAlignment, 0);
      EXPECT_EQ(segment.whole_size, segment.shard_size * ranks);
      int64_t group_end = 0;
      for (const auto& group : segment.groups) {
        EXPECT_EQ(group.range.begin, group_end);
        EXPECT_EQ(group.range.begin % kFlatAlignment, 0);
        group_end = group.range.end;
      }
      EXPECT_EQ(group_end, segment.whole_size);
      int64_t end = 0;
      for (const auto& [parameter, range, memory] : segment.placements) {
        EXPECT_GE(range.begin, end);
        EXPECT_EQ(range.begin % kFlatAlignment, 0);
        EXPECT_EQ(range.size(), parameter->numel());
        EXPECT_EQ(memory.begin, range.begin);
        EXPECT_EQ(memory.size(), parameter->memory_numel());
        end = memory.end;
      }
      EXPECT_LE(end, segment.whole_size);
    }
  }
}

TEST(ShardLayout, PaddedRowsLieBehindTheFilesElements) {
  at::Tensor slot;
  const auto table = three_units(&slot);
  EXPECT_EQ(table.parameters[0].memory_shape(), (std::vector<int64_t>{64, 5}));
  EXPECT_EQ(table.num_elements(), 7 * 5 + 5 + 130 + 3);
  const auto placement = lay_out(table, 1)[0].placements[0];
  EXPECT_EQ(placement.range.size(), 35);
  EXPECT_EQ(placement.memory.size(), 320);
}

TEST(ShardLayout, GapsAndLeavesAreTheWhole) {
  at::Tensor slot;
  const auto table = three_units(&slot);
  for (const int ranks : {1, 3}) {
    for (const auto& segment : lay_out(table, ranks)) {
      std::vector<int> seen(static_cast<size_t>(segment.whole_size), 0);
      const auto mark = [&](Range range) {
        for (int64_t i = range.begin; i < range.end; ++i) ++seen[static_cast<size_t>(i)];
      };
      for (const auto& placement : segment.placements) mark(placement.memory);
      for (const auto gap : gaps(segment)) mark(gap);
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
  }
}

TEST(ShardLayout, DecayingParametersComeFirst) {
  at::Tensor slot;
  const auto table = three_units(&slot);
  const auto segments = lay_out(table, 2);
  const auto& trainable = segments[2];
  ASSERT_TRUE(trainable.trainable);
  EXPECT_EQ(trainable.placements[0].parameter->name, "weight");
  EXPECT_EQ(trainable.placements[1].parameter->name, "norm");
  EXPECT_EQ(trainable.placements[1].range.begin, 256);
  ASSERT_EQ(trainable.groups.size(), 2U);
  EXPECT_EQ(trainable.groups[0].range.end, 256);
  EXPECT_TRUE(trainable.groups[0].decay);
  EXPECT_FALSE(trainable.groups[1].decay);
}

TEST(ShardLayout, RatesMakeGroups) {
  at::Tensor slot;
  ParameterTable table;
  const int block = table.add_unit("block");
  for (const char* name : {"0", "1"}) {
    const std::string layer = name;
    table.add({.name = layer + ".a", .shape = {2, 3}, .unit = block, .slot = &slot});
    table.add({.name = layer + ".b", .shape = {3, 2}, .unit = block, .rate = 16, .slot = &slot});
    table.add({.name = layer + ".m",
               .shape = {3},
               .unit = block,
               .decay = false,
               .rate = 16,
               .slot = &slot});
  }
  const auto segments = lay_out(table, 1);
  std::string order;
  for (const auto& placement : segments[0].placements) order += placement.parameter->name + " ";
  EXPECT_EQ(order, "0.a 1.a 0.b 1.b 0.m 1.m ");
  const auto& groups = segments[0].groups;
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].rate, 1);
  EXPECT_EQ(groups[1].rate, 16);
  EXPECT_TRUE(groups[1].decay);
  EXPECT_EQ(groups[2].rate, 16);
  EXPECT_FALSE(groups[2].decay);
  EXPECT_EQ(groups[1].range.begin, 256);
  EXPECT_EQ(groups[2].range.begin, 512);
}

}  // namespace
}  // namespace skein::tensor
