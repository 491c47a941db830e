// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/bench/scaling.h"

#include <gtest/gtest.h>

#include "skein/core/store.h"
#include "skein/core/testing.h"

namespace skein::train {
namespace {

using ScalingBench = TemporaryFolder;

ScalingOptions options_in(const fs::path& folder) {
  write_file_atomically(folder / "config.json", R"({"model_type": "llama", "vocab_size": 64,
      "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 2, "max_position_embeddings": 32})");
  return {.bench = {.model = folder, .rows = 2, .tokens = 16, .warmup_steps = 1, .steps = 3},
          .ranks = {},
          .stages = {0, 3}};
}

// On nodes of `local_size` ranks; rank 0's.
ScalingReport report_of(const ScalingOptions& options, int size, int local_size) {
  ScalingReport report;
  MemoryStore store;
  comm::run_ranks(size, [&](comm::Group& group) {
    World world{.group = group,
                .store = store,
                .local_rank = group.rank() % local_size,
                .token = {},
                .stop_requested = {},
                .local_size = local_size};
    const auto own = bench_scaling(options, world);
    if (group.rank() == 0) report = own;
  });
  return report;
}

TEST_F(ScalingBench, MeasuresEveryWorldBesideItsPrediction) {
  const auto report = report_of(options_in(folder_), 4, 4);
  ASSERT_EQ(report.cases.size(), 5U);  // one rank once, two and four under both stages
  EXPECT_TRUE(report.links.empty());
  EXPECT_EQ(report.cases[0].world.size(), 1);
  EXPECT_EQ(report.cases[0].efficiency, 1);
  EXPECT_FALSE(report.cases[0].predicted);
  for (size_t i = 1; i < report.cases.size(); ++i) {
    const auto& row = report.cases[i];
    EXPECT_EQ(row.world.size(), i < 3 ? 2 : 4);
    EXPECT_EQ(row.stage, i % 2 == 1 ? 0 : 3);
    EXPECT_GT(row.seconds, 0);
    ASSERT_TRUE(row.predicted);
    EXPECT_GT(row.predicted->seconds(), 0);
  }
  EXPECT_GE(report.cases[3].flat_bytes, report.cases[0].flat_bytes);  // DDP keeps all of it
  EXPECT_LT(report.cases[4].flat_bytes, report.cases[0].flat_bytes);
  ASSERT_EQ(report.outlooks.size(), 2U);
  EXPECT_EQ(report.outlooks[1].stage, 3);
}

TEST_F(ScalingBench, EveryPairOfNodesHasALink) {
  auto options = options_in(folder_);
  options.ranks = {3};
  options.stages = {1};
  const auto report = report_of(options, 3, 1);
  ASSERT_EQ(report.links.size(), 3U);
  for (const auto& link : report.links) {
    EXPECT_LT(link.first, link.second);
    EXPECT_GT(link.bytes_per_second, 0);
  }
  ASSERT_EQ(report.cases.size(), 1U);
  EXPECT_EQ(report.cases[0].world.nodes, 3);
  EXPECT_FALSE(report.cases[0].predicted);  // nobody knows how long one rank takes
  EXPECT_TRUE(report.outlooks.empty());
}

}  // namespace
}  // namespace skein::train
