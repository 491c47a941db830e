// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/pt_writer.h"
#include "skein/gradient_features/files/shard.h"
#include "skein/gradient_features/files/testing.h"

namespace skein::gradient_features {
namespace {

class MergeTest : public TemporaryFolder {
 protected:
  // The elements of a .pt file that holds so many.
  static std::vector<float> elements(const fs::path& path, const std::vector<int64_t>& shape) {
    const auto bytes = read_file(path);
    EXPECT_EQ(bytes.size(), pt_file_bytes(path, DType::kF32, shape)) << path;
    const auto name = bytes.find(path.stem().string() + "/data/0");
    const auto begin = (name + path.stem().string().size() + 7 + 4 + 63) / 64 * 64;
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data() + begin, count * sizeof(float));
    return values;
  }

  const CollectionFacts facts_ = small_facts();
};

TEST_F(MergeTest, RowsBySampleWhateverTheRanks) {
  std::string first;
  for (const int64_t ranks : {1, 2, 3}) {
    const auto output = folder_ / fmt::format("{}", ranks);
    collect_known(output, facts_, ranks);
    const auto summary = merge_collection({.output = output, .parts = true});
    EXPECT_EQ(summary.num_rows, 11);
    uint64_t bytes = 0;
    for (const auto& file : summary.files) bytes += fs::file_size(file);
    EXPECT_EQ(bytes, summary.bytes);
    std::string all;
    for (const auto& file : summary.files) all += read_file(file);
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << ranks;
  }
}

TEST_F(MergeTest, MergedFileHoldsRowsAndSamples) {
  collect_known(folder_, facts_, 2, {{2, SkipReason::kNoTarget}});
  const auto summary = merge_collection({.output = folder_});
  EXPECT_EQ(summary.skipped, (std::vector<SkippedSample>{{2, SkipReason::kNoTarget}}));
  const auto file = File::open_to_read(folder_ / kMergedFile);
  const auto header = checkpoint::read_header(file, "f");
  EXPECT_EQ(header.metadata.at("facts"), facts_text(facts_));
  EXPECT_EQ(header.metadata.at("skipped"), "2:no_target");
  ASSERT_EQ(header.tensors.size(), 2U);
  std::vector<int64_t> samples(10);
  std::vector<float> rows(50);
  file.read_at(header.data_begin + header.tensors[0].begin,
               std::as_writable_bytes(std::span(samples)));
  file.read_at(header.data_begin + header.tensors[1].begin,
               std::as_writable_bytes(std::span(rows)));
  for (size_t i = 0; i < 10; ++i) {
    const auto sample = static_cast<int64_t>(i) + (i >= 2 ? 1 : 0);
    EXPECT_EQ(samples[i], sample);
    for (int64_t c = 0; c < 5; ++c) {
      EXPECT_EQ(rows[i * 5 + static_cast<size_t>(c)], known_value(sample, c));
    }
  }
}

TEST_F(MergeTest, EachDimensionIsABeginningWithARowForEverySample) {
  collect_known(folder_, facts_, 1, {{2, SkipReason::kNoTarget}});
  merge_collection({.output = folder_});
  for (const int64_t columns : {3, 5}) {
    const auto folder = folder_ / fmt::format("dim{}", columns);
    const auto raw = elements(folder / "all_unormalized.pt", {11, columns});
    const auto unit = elements(folder / "all_orig.pt", {11, columns});
    for (int64_t sample = 0; sample < 11; ++sample) {
      double squares = 0;
      for (int64_t c = 0; c < columns; ++c) {
        const auto place = static_cast<size_t>(sample * columns + c);
        EXPECT_EQ(raw[place], sample == 2 ? 0 : known_value(sample, c));
        squares += static_cast<double>(unit[place]) * unit[place];
      }
      EXPECT_NEAR(squares, sample == 2 ? 0 : 1, 1e-6);
    }
  }
}

TEST_F(MergeTest, PartsOfOneHundredAndSixty) {
  auto facts = facts_;
  facts.num_samples = 330;
  facts.samples_per_block = 64;
  facts.dimensions = {5};
  collect_known(folder_, facts);
  merge_collection({.output = folder_, .parts = true});
  const auto folder = folder_ / "dim5";
  const auto all = elements(folder / "all_unormalized.pt", {330, 5});
  std::vector<float> parts;
  for (const auto& [end, count] : {std::pair{160, 160}, {320, 160}, {330, 10}}) {
    const auto part = elements(folder / fmt::format("grads-{}.pt", end), {count, 5});
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, all);
}

TEST_F(MergeTest, RankFilesHoldTheirOwnRows) {
  collect_known(folder_, facts_, 2, {{9, SkipReason::kNotFinite}});
  write_rank_pt(folder_, folder_ / "rank_0", facts_);  // blocks 0 and 2
  const auto rows = elements(folder_ / "rank_0/gradients.pt", {6, 5});
  const int64_t samples[] = {0, 1, 2, 3, 8, 10};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(rows[i * 5], known_value(samples[i], 0));
  write_rank_pt(folder_, folder_ / "rank_2", facts_);  // had nothing to do
  EXPECT_TRUE(elements(folder_ / "rank_2/gradients.pt", {0, 5}).empty());
  flip(folder_ / "rank_0" / shard_name(0), 20);
  EXPECT_PRED2(contains,
               refusal<IoError>([&] { write_rank_pt(folder_, folder_ / "rank_0", facts_); }),
               "block 0 (samples 0 to 3)");
}

// Another start, or another rank of it, has made the block again.
TEST_F(MergeTest, RankFilesGoWithoutShardsThatWereMadeAgainElsewhere) {
  collect_known(folder_, facts_, 2);
  const auto broken = folder_ / "rank_0" / shard_name(0);
  for (const uint64_t place : {uint64_t{20}, fs::file_size(broken) - 1}) {  // header, rows
    flip(broken, place);
    EXPECT_EQ(missing_blocks(folder_, facts_), std::vector<int64_t>{0});
    write_known(folder_ / "rank_1", facts_, 0);
    EXPECT_TRUE(missing_blocks(folder_, facts_).empty());
    write_rank_pt(folder_, folder_ / "rank_0", facts_);
    const auto rows = elements(folder_ / "rank_0/gradients.pt", {3, 5});  // of block 2
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rows[i * 5], known_value(8 + static_cast<int64_t>(i), 0));
    }
    flip(broken, place);
    fs::remove(folder_ / "rank_1" / shard_name(0));
  }
}

TEST_F(MergeTest, RoomIsForRanksFilesToo) {
  collect_known(folder_, facts_);
  write_rank_pt(folder_, folder_, facts_);
  EXPECT_EQ(rank_pt_bytes(facts_), fs::file_size(folder_ / "gradients.pt"));
}

TEST_F(MergeTest, AFolderUnderAFilesNameIsRefused) {
  collect_known(folder_, facts_);
  for (const auto* name : {"gradients.safetensors", "dim3/all_orig.pt"}) {
    fs::create_directories(folder_ / name);
    EXPECT_PRED2(contains, refusal<UserError>([&] { merge_collection({.output = folder_}); }),
                 fmt::format("{} is a folder, where a file belongs: remove it", name));
    fs::remove(folder_ / name);
  }
  EXPECT_FALSE(fs::exists(folder_ / "dim5"));
}

TEST_F(MergeTest, DamageLeavesNothingBehind) {
  collect_known(folder_, facts_);
  flip(folder_ / shard_name(2), fs::file_size(folder_ / shard_name(2)) - 1);
  const auto message = refusal<IoError>([&] { merge_collection({.output = folder_}); });
  EXPECT_PRED2(contains, message, "block 2 (samples 8 to 10)");
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    const auto name = entry.path().filename().string();
    EXPECT_TRUE(name.starts_with("block-") || name == kCollectionFile || name.starts_with("dim"))
        << name;
    EXPECT_FALSE(contains(name, ".tmp-")) << name;
  }
}

TEST_F(MergeTest, HalvesStayTheSameBits) {
  auto facts = facts_;
  facts.output_dtype = DType::kF16;
  collect_known(folder_, facts);
  merge_collection({.output = folder_});
  const auto file = File::open_to_read(folder_ / kMergedFile);
  const auto header = checkpoint::read_header(file, "f");
  EXPECT_EQ(header.tensors[1].dtype, DType::kF16);
  const auto merged = read_file(folder_ / kMergedFile);
  const auto shard = read_file(folder_ / shard_name(0));
  EXPECT_EQ(merged.substr(header.data_begin + 88, 40), shard.substr(shard.size() - 40));
}

}  // namespace
}  // namespace skein::gradient_features
