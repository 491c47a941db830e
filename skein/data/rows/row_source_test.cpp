// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_source.h"

#include <gtest/gtest.h>

#include <set>

#include "skein/data/rows/test_rows.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {
namespace {

using RowIds = std::vector<int64_t>;
constexpr int64_t kNone = tensor::kIgnore;

using RowSourceTest = RowsTest;

TEST_F(RowSourceTest, APositionPredictsTheNextIdWhereThatIsTrainedOn) {
  const RowSource source(prepare("{\"prompt\": \"AB\", \"completion\": \"CD\"}\n"), {});
  ASSERT_EQ(source.count(), 1);
  EXPECT_EQ(source.length(0), 5);
  EXPECT_EQ(source.num_targets(0), 3);
  RowIds tokens(5), targets(5);
  source.read(0, tokens, targets);
  EXPECT_EQ(tokens, (RowIds{65, 66, 67, 68, 256}));
  EXPECT_EQ(targets, (RowIds{kNone, 67, 68, 256, kNone}));
}

TEST_F(RowSourceTest, LongRowsLoseTheirEnd) {
  const RowSource source(prepare(row_of(3, 4) + row_of(3, 9) + row_of(8, 2)), {.cutoff_len = 8});
  EXPECT_EQ(source.counts(), (RowCounts{.rows = 3,
                                        .too_long = 2,
                                        .prompt_too_long = 1,
                                        .samples = 2,
                                        .tokens = 7 + 12 + 10,
                                        .tokens_lost = 4 + 2,
                                        .targets = 4 + 9 + 2,
                                        .targets_lost = 4 + 2}));
  EXPECT_EQ(source.length(1), 8);
  EXPECT_EQ(source.num_targets(1), 5);
  RowIds tokens(8), targets(8);
  source.read(1, tokens, targets);
  EXPECT_EQ(targets, (RowIds{kNone, kNone, 'c', 'c', 'c', 'c', 'c', kNone}));
  EXPECT_EQ(tokens[7], 'c');
}

TEST_F(RowSourceTest, LongRowsAreDroppedOrRefused) {
  const auto rows = row_of(3, 9) + row_of(3, 4);
  const RowSource source(prepare(rows), {.cutoff_len = 8, .excess_length = ExcessLength::kDrop});
  EXPECT_EQ(source.counts(), (RowCounts{.rows = 2,
                                        .too_long = 1,
                                        .samples = 1,
                                        .tokens = 19,
                                        .tokens_lost = 12,
                                        .targets = 13,
                                        .targets_lost = 9}));
  EXPECT_EQ(source.row_of(0), 1);
  EXPECT_PRED2(contains, source.place_of(0), "train.jsonl:2");
  const auto message = refusal<IoError>(
      [&] { RowSource(prepare(rows), {.cutoff_len = 8, .excess_length = ExcessLength::kError}); });
  EXPECT_PRED2(contains, message, "train.jsonl:1: the row has 12 tokens, cutoff_len is 8");
  EXPECT_TRUE(prepare(rows).was_reused) << "another cutoff needs no other file";
}

TEST_F(RowSourceTest, NothingToTrainOnIsRefused) {
  EXPECT_PRED2(
      contains, refusal<IoError>([&] { RowSource(prepare(row_of(9, 2)), {.cutoff_len = 8}); }),
      "cutoff_len=8 leaves no token of any answer in 1 row: the prompts alone are as long");
  EXPECT_PRED2(contains,
               refusal<UserError>([&] { RowSource(prepare(row_of(9, 2)), {.cutoff_len = 1}); }),
               "cutoff_len: 1 leaves nothing to predict");
}

TEST(RowsOfSplit, SharesAndNumbersOfRows) {
  const auto sizes = [](int64_t count, double val_size) {
    return std::pair(rows_of_split(count, val_size, 7, Holdout::kKept).count(),
                     rows_of_split(count, val_size, 7, Holdout::kHeldOut).count());
  };
  EXPECT_EQ(sizes(100, 0.1), (std::pair<int64_t, int64_t>{90, 10}));
  EXPECT_EQ(sizes(100, 0.001), (std::pair<int64_t, int64_t>{99, 1}));
  EXPECT_EQ(sizes(100, 1), (std::pair<int64_t, int64_t>{99, 1})) << "one row, not all";
  EXPECT_EQ(sizes(100, 30), (std::pair<int64_t, int64_t>{70, 30}));
  EXPECT_EQ(rows_of_split(100, 0, 7, Holdout::kKept).count(), 100);
  std::set<int64_t> all;
  for (const auto side : {Holdout::kKept, Holdout::kHeldOut}) {
    const auto set = rows_of_split(100, 30, 7, side);
    for (int64_t i = 0; i < set.count(); ++i) all.insert(set.sample(i));
  }
  EXPECT_EQ(all.size(), 100u) << "the two never meet";
  for (const double wrong : {-1.0, 1.5, 100.0, 1e300, 0.999}) {
    EXPECT_THROW(sizes(100, wrong), UserError) << wrong;
  }
  EXPECT_THROW(sizes(1, 0.5), UserError);
}

}  // namespace
}  // namespace skein::data
