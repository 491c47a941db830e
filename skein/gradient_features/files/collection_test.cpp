// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/collection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/row_reader.h"
#include "skein/gradient_features/files/score.h"
#include "skein/gradient_features/files/shard.h"
#include "skein/gradient_features/files/testing.h"

namespace skein::gradient_features {
namespace {

using Blocks = std::vector<int64_t>;

class CollectionTest : public TemporaryFolder {
 protected:
  CollectionTest() {
    set_log_writer([this](std::string_view line) { log_ += line; });
  }
  ~CollectionTest() override { set_log_writer({}); }

  const CollectionFacts facts_ = small_facts();
  const fs::path output_ = folder_ / "out";
  std::string log_;
};

TEST_F(CollectionTest, BeginsAndGoesOn) {
  open_collection(output_, facts_);
  EXPECT_EQ(missing_blocks(output_, facts_), (Blocks{0, 1, 2}));
  write_known(output_, facts_, 1);
  open_collection(output_, facts_);
  EXPECT_EQ(missing_blocks(output_, facts_), (Blocks{0, 2}));
  EXPECT_EQ(facts_text(read_collection(output_)), facts_text(facts_));
}

TEST_F(CollectionTest, OtherFactsAreRefusedAndNothingIsTouched) {
  collect_known(output_, facts_);
  auto other = facts_;
  other.dimensions = {5};
  const auto message = refusal<UserError>([&] { open_collection(output_, other); });
  EXPECT_PRED2(contains, message, "dimensions is [3, 5] there and [5] now");
  EXPECT_PRED2(contains, message, "another output_path");
  EXPECT_TRUE(missing_blocks(output_, facts_).empty());
}

TEST_F(CollectionTest, FactsWithoutARowAreReplaced) {
  open_collection(output_, facts_);
  auto other = facts_;
  other.dimensions = {5};
  open_collection(output_, other);
  EXPECT_EQ(facts_text(read_collection(output_)), facts_text(other));
  EXPECT_PRED2(contains, log_, "written anew");
  write_known(output_ / "rank_1", other, 1);
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_collection(output_, facts_); }),
               "another collection");
  fs::remove_all(output_ / "rank_1");
  write("out/gradients.safetensors", "rows that were merged");
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_collection(output_, facts_); }),
               "another collection");
}

TEST_F(CollectionTest, AFolderUnderAShardsNameIsRefusedBeforeAnythingIsComputed) {
  open_collection(output_, facts_);
  fs::create_directories(output_ / shard_name(2));
  EXPECT_PRED2(contains, refusal<UserError>([&] { missing_blocks(output_, facts_); }),
               "block-00000002.safetensors is a folder, where a file belongs: remove it");
}

// Whatever a file says, memory is that of what lies there.
TEST_F(CollectionTest, FactsOfManySamplesAreNotBelieved) {
  auto facts = facts_;
  facts.num_samples = int64_t{1} << 31;
  facts.samples_per_block = 1;
  facts.data_files = {{facts.num_samples, digest("file")}};
  open_collection(output_, facts);
  write_known(output_, facts, 1);
  const auto message = refusal<IoError>([&] { RowReader reader(output_); });
  EXPECT_PRED2(contains, message, "lacks 2147483647 of 2147483648 blocks");
  EXPECT_PRED2(contains, message, "blocks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, and 2147483637 more");
  facts.num_samples = int64_t{1} << 40;
  facts.samples_per_block = 65536;
  facts.data_files = {{facts.num_samples, digest("file")}};
  open_collection(folder_ / "huge", facts);
  EXPECT_PRED2(
      contains, refusal<IoError>([&] {
        score({.train = {folder_ / "huge"}, .validation = {folder_ / "huge"}, .weights = {1}});
      }),
      "lacks 16777216 of 16777216 blocks");
}

TEST_F(CollectionTest, ShardsWithoutFactsAreRefused) {
  collect_known(output_, facts_, 2);
  fs::remove(output_ / kCollectionFile);
  EXPECT_PRED2(contains, refusal<UserError>([&] { open_collection(output_, facts_); }),
               "without a collection.json");
  EXPECT_PRED2(contains, refusal<UserError>([&] { RowReader reader(output_); }),
               "holds no collection");
}

TEST_F(CollectionTest, ShardsOfAllRanksCountWhateverTheirNumberIsNow) {
  open_collection(output_, facts_);
  write_known(folder_of_rank(output_, 0, 1), facts_, 0);
  write_known(folder_of_rank(output_, 3, 4), facts_, 2);
  EXPECT_EQ(missing_blocks(output_, facts_), (Blocks{1}));
  EXPECT_EQ(folder_of_rank(output_, 3, 4), output_ / "rank_3");
  EXPECT_EQ(folder_of_rank(output_, 0, 1), output_);
}

TEST_F(CollectionTest, RowsComeInOrderWithTheirSamples) {
  const std::vector<SkippedSample> skipped = {{2, SkipReason::kNoTarget},
                                              {4, SkipReason::kNotFinite},
                                              {5, SkipReason::kNoTarget},
                                              {6, SkipReason::kNoTarget},
                                              {7, SkipReason::kNoTarget}};
  collect_known(output_, facts_, 3, skipped);
  RowReader reader(output_);
  EXPECT_EQ(reader.num_rows(), 6);
  EXPECT_EQ(reader.skipped(), skipped);
  for (int64_t number = 0; number < 3; ++number) {
    const auto block = reader.next();
    ASSERT_TRUE(block.has_value());
    const auto known = known_block(facts_, number, skipped);
    EXPECT_EQ(block->block, number);
    EXPECT_EQ(block->samples, known.samples);
    EXPECT_TRUE(std::ranges::equal(block->rows, known.rows));
    EXPECT_EQ(block->skipped, known.skipped);
  }
  EXPECT_FALSE(reader.next().has_value());
}

TEST_F(CollectionTest, EqualCopiesOfABlockCountOnce) {
  collect_known(output_, facts_);
  write_known(output_ / "rank_1", facts_, 1);
  EXPECT_TRUE(missing_blocks(output_, facts_).empty());
  RowReader reader(output_);
  EXPECT_EQ(reader.num_rows(), 11);
}

TEST_F(CollectionTest, DifferentCopiesOfABlockAreRefused) {
  collect_known(output_, facts_);
  write_known(output_ / "rank_1", facts_, 1, {}, /*salt=*/1);
  const auto expect = [&](const auto& action) {
    const auto message = refusal<UserError>(action);
    EXPECT_PRED2(contains, message, "hold different rows of block 1 (samples 4 to 7)");
    EXPECT_PRED2(contains, message, "rank_1/block-00000001.safetensors");
  };
  expect([&] { missing_blocks(output_, facts_); });
  expect([&] { RowReader reader(output_); });
}

TEST_F(CollectionTest, AWholeCopyStandsInForADamagedOne) {
  collect_known(output_, facts_);
  write_known(output_ / "rank_1", facts_, 1);
  const auto path = output_ / shard_name(1);
  flip(path, fs::file_size(path) - 1);
  EXPECT_TRUE(missing_blocks(output_, facts_).empty());
  EXPECT_PRED2(contains, log_, "another copy of its block is whole");
  RowReader reader(output_);
  reader.next();
  EXPECT_TRUE(std::ranges::equal(reader.next()->rows, known_block(facts_, 1).rows));
}

TEST_F(CollectionTest, DamagedBlocksAreMissingAndWrittenAgain) {
  collect_known(output_, facts_);
  const auto path = output_ / shard_name(1);
  flip(path, fs::file_size(path) - 1);
  EXPECT_EQ(missing_blocks(output_, facts_), (Blocks{1}));
  EXPECT_PRED2(contains, log_, "block-00000001.safetensors");
  write_known(output_, facts_, 1);
  EXPECT_TRUE(missing_blocks(output_, facts_).empty());
}

TEST_F(CollectionTest, ReadersNameMissingAndDamagedSamples) {
  collect_known(output_, facts_);
  fs::remove(output_ / shard_name(2));
  auto message = refusal<IoError>([&] { RowReader reader(output_); });
  EXPECT_PRED2(contains, message, "lacks 1 of 3 blocks: block 2 (samples 8 to 10)");
  EXPECT_PRED2(contains, message, "skein gradients collect");
  write_known(output_, facts_, 2);
  for (const int64_t block : {0, 2}) {
    const auto path = output_ / shard_name(block);
    flip(path, fs::file_size(path) - 3);
  }
  message = refusal<IoError>([&] {
    RowReader reader(output_);
    while (reader.next()) {
    }
  });
  EXPECT_PRED2(contains, message, "blocks 0, 2 (samples 0 to 3, 8 to 10)");
  EXPECT_PRED2(contains, message, "the digest differs");
}

TEST_F(CollectionTest, ShardsOfAnotherCollectionAreRefused) {
  auto other = facts_;
  other.model_digest = digest("another");
  collect_known(folder_ / "other", other);
  collect_known(output_, facts_);
  fs::copy_file(folder_ / "other" / shard_name(1), output_ / shard_name(1),
                fs::copy_options::overwrite_existing);
  EXPECT_PRED2(contains, refusal<UserError>([&] { missing_blocks(output_, facts_); }),
               "belongs to another collection");
  EXPECT_PRED2(contains, refusal<UserError>([&] { RowReader reader(output_); }),
               "belongs to another collection");
}

TEST_F(CollectionTest, AShardUnderAnotherNameIsDamaged) {
  collect_known(output_, facts_);
  fs::rename(output_ / shard_name(1), output_ / shard_name(2));
  EXPECT_EQ(missing_blocks(output_, facts_), (Blocks{1, 2}));
}

TEST_F(CollectionTest, HalvesAreRoundedToNearestEven) {
  auto facts = facts_;
  facts.output_dtype = DType::kF16;
  open_collection(output_, facts);
  auto known = known_block(facts, 0);
  known.rows[0] = 1.00048828125F;  // halfway: to the even 1
  known.rows[1] = 1.00146484375F;  // halfway: to the even 1.001953125
  known.rows[2] = 65519.0F;        // to 65504
  write_block(output_, facts, {0, known.samples, known.rows, {}});
  const auto block = read_shard(output_ / shard_name(0), KnownCollection(facts));
  EXPECT_EQ(block.rows[0], 1.0F);
  EXPECT_EQ(block.rows[1], 1.001953125F);
  EXPECT_EQ(block.rows[2], 65504.0F);
  EXPECT_EQ(block.rows[3], known.rows[3]);
  known.rows[facts.dimension() * 2] = -70000;
  const auto message =
      refusal<UserError>([&] { write_block(output_, facts, {0, known.samples, known.rows, {}}); });
  EXPECT_PRED2(contains, message, "sample 2 has -70000");
  EXPECT_PRED2(contains, message, "--output_dtype float32");
}

TEST_F(CollectionTest, LeftoversOfKilledWritersGoAndOthersStay) {
  collect_known(output_, facts_, 2);
  const auto left = temporary_beside(output_ / "rank_1" / shard_name(1));
  write_file_atomically(left, "half");
  const auto mine = output_ / "rank_1" / "block-00000001.safetensors.tmp-notes";
  write_file_atomically(mine, "mine");
  open_collection(output_, facts_);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(mine));
}

TEST_F(CollectionTest, UnevenCounts) {
  for (const int64_t samples : {1, 3, 4, 5, 8}) {
    auto facts = facts_;
    facts.num_samples = samples;
    const auto output = folder_ / fmt::format("{}", samples);
    collect_known(output, facts, 3);
    RowReader reader(output);
    std::vector<int64_t> seen;
    while (const auto block = reader.next()) {
      seen.insert(seen.end(), block->samples.begin(), block->samples.end());
    }
    ASSERT_EQ(static_cast<int64_t>(seen.size()), samples);
    for (int64_t i = 0; i < samples; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  }
}

TEST_F(CollectionTest, RoomIsCheckedWithBothNumbers) {
  const auto message =
      refusal<DiskFull>([&] { check_room(output_ / "not/yet", UINT64_MAX / 2, "the rows"); });
  EXPECT_PRED2(contains, message, "the disk is too small for the rows: 8");
  EXPECT_PRED2(contains, message, "are free in " + fs::canonical(folder_).string());
  EXPECT_NO_THROW(check_room(output_, 1, "the rows"));
  EXPECT_GE(bytes_to_come(facts_, 3), 11U * 5 * 4);
}

TEST_F(CollectionTest, AShardIsNoLargerThanAnnounced) {
  const std::vector<SkippedSample> skipped = {{0, SkipReason::kNotFinite},
                                              {1, SkipReason::kNotFinite},
                                              {2, SkipReason::kNotFinite},
                                              {3, SkipReason::kNotFinite}};
  collect_known(output_, facts_, 1, skipped);
  for (int64_t block = 0; block < 3; ++block) {
    EXPECT_LE(fs::file_size(output_ / shard_name(block)), bytes_to_come(facts_, 1));
  }
}

}  // namespace
}  // namespace skein::gradient_features
