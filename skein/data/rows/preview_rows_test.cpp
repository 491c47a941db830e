// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/preview_rows.h"

#include <gtest/gtest.h>

#include "skein/data/rows/test_rows.h"

namespace skein::data {
namespace {

const AuditOptions kByteEnd{.ends_of_turn = {256}, .begin = {}};

class PreviewRowsTest : public RowsTest {
 protected:
  PreviewRowsTest() {
    options_.data = data_;
    options_.encoder = byte_encoder();
    options_.limits.cutoff_len = 8;
    options_.vocab_size = 257;
  }

  RowPreview look(const AuditOptions& tokens = kByteEnd) {
    return preview_rows(find_row_sources(options_.data, Split::kTrain), Split::kTrain, options_,
                        tokens);
  }
  void give(const std::string& rows) {
    options_.data.train_file = write("train.jsonl", rows).string();
  }

  // What a look refuses, a run refuses in the same words. Returns them.
  template <typename Error = IoError>
  std::string refused(const std::string& rows, const AuditOptions& tokens = kByteEnd) {
    give(rows);
    const auto said = refusal<Error>([&] { look(tokens); });
    EXPECT_EQ(said, refusal<Error>([&] { require_labels(open_run_rows(options_), tokens, 1); }));
    return said;
  }

  RunRowsOptions options_;
};

TEST_F(PreviewRowsTest, RefusesWhatARunRefuses) {
  const auto fine = row_of(3, 4);
  options_.limits.excess_length = ExcessLength::kError;
  EXPECT_PRED2(contains, refused(fine + row_of(3, 9)), "train.jsonl:2: the row has 12 tokens");
  options_.limits.excess_length = ExcessLength::kTruncate;
  EXPECT_PRED2(contains, refused(row_of(8, 2) + row_of(9, 2)), "leaves no token of any answer in");
  EXPECT_PRED2(
      contains, refused(row_of(8, 2) + "{\"text\": \"\"}\n"),
      "none of 2 rows can be trained on: 1 without a target, 1 longer than cutoff_len=8, 1 ");
  EXPECT_PRED2(contains, refused(fine + row_of(8, 2)), "1 of 2 rows of the train data (50.0 %)");
  EXPECT_PRED2(contains, refused(row_of(3, 9)), "in no row of the train data is the end");
  EXPECT_PRED2(contains, refused(fine, {.ends_of_turn = {}, .begin = {}, .missing = "type this"}),
               "type this");
  EXPECT_PRED2(contains, refused("\n"), "holds no row");
  options_.limits.excess_length = ExcessLength::kDrop;
  EXPECT_PRED2(contains, refused(row_of(3, 9)), "none of 1 row can be trained on");
  options_.limits.cutoff_len = 1;
  EXPECT_PRED2(contains, refused<UserError>(fine), "cutoff_len: 1 leaves nothing to predict");
}

TEST_F(PreviewRowsTest, RefusesPairsThatARunRefuses) {
  options_.encoder = byte_encoder(RowKind::kPairs);
  const auto fine = pair_of(2, "AB", "C");
  EXPECT_EQ(refused(fine + fine), "");
  EXPECT_PRED2(contains, refused(pair_of(8, "A", "B")), "leaves no token of any answer in 1 pair");
  EXPECT_PRED2(contains, refused(pair_of(2, "A", "A")),
               "1 with two equal answers (equal_pairs=keep");
  EXPECT_PRED2(
      contains, refused(fine + pair_of(9, "A", "B")),
      "1 of 2 pairs of the train data (50.0 %) have a prompt as long as cutoff_len=8, the first ");
  EXPECT_PRED2(contains, refused(pair_of(2, "AAAAAAAA", "BBBBBBBB")), "in no answer of the train");
  EXPECT_PRED2(contains,
               refused(pair_of(2, "AAAAAAAA", "BBBBBBBB"),
                       {.ends_of_turn = {256}, .begin = {}, .scores = true}),
               "cutoff_len=8 cuts every answer of the train data");
  options_.limits.equal_pairs = EqualPairs::kError;
  EXPECT_PRED2(
      contains, refused(fine + pair_of(2, "A", "A")),
      "train.jsonl:2: the chosen and the rejected answer are equal; give equal_pairs: drop");
  options_.limits.excess_length = ExcessLength::kError;
  EXPECT_PRED2(contains, refused(pair_of(2, "A", "BBBBBB")),
               "train.jsonl:1: the rejected answer and its prompt have 9 tokens, cutoff_len is 8");
}

TEST_F(PreviewRowsTest, SeesPairsThatStay) {
  options_.encoder = byte_encoder(RowKind::kPairs);
  give(pair_of(2, "AB", "C") + pair_of(2, "A", "A") + pair_of(3, "AAAAAAAA", "B"));
  const auto seen = look();
  EXPECT_EQ(seen.rows, 2);
  EXPECT_EQ(seen.lengths, (std::vector<int64_t>{5 + 4, 8 + 5}));
  EXPECT_EQ(seen.tokens, 22);
  EXPECT_EQ(seen.longest, 8) << "of an answer";
  EXPECT_EQ(seen.packs, 2) << "of 16 tokens";
  EXPECT_TRUE(hold_conversations(find_row_sources(options_.data, Split::kTrain)));
}

TEST_F(PreviewRowsTest, SeesWhatStays) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += row_of(2, 3);
  give(rows + row_of(3, 9) + row_of(8, 2));
  const auto seen = look();
  EXPECT_TRUE(seen.exact);
  EXPECT_EQ(seen.rows, 41);
  EXPECT_EQ(seen.tokens, 40 * 5 + 8);
  EXPECT_EQ(seen.lengths.back(), 8);
  EXPECT_EQ(seen.rows, open_run_rows(options_).train.source->count());
}

// What was seen may be all that is wrong: only a row that is refused by itself is certain.
TEST_F(PreviewRowsTest, AnEstimateRefusesNoMoreThanItHasSeen) {
  const auto late = row_of(8, 2);
  std::string rows;
  while (rows.size() < size_t{300} << 10) rows += late;
  give(rows);
  EXPECT_FALSE(look().exact);
  EXPECT_EQ(look().rows, 0);
  options_.limits.excess_length = ExcessLength::kError;
  EXPECT_PRED2(contains, refusal<IoError>([&] { look(); }), "train.jsonl:1: the row has 10 tokens");
}

}  // namespace
}  // namespace skein::data
