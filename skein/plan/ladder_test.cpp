// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/ladder.h"

#include <gtest/gtest.h>

#include "skein/checkpoint/files/run_record.h"
#include "skein/config/batch_plan.h"
#include "skein/core/testing.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {
namespace {

// A Llama on four GPUs, 32 rows of each per update.
class LadderTest : public TemporaryFolder {
 protected:
  LadderTest() {
    write_file_atomically(folder_ / "config.json",
                          R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
            "intermediate_size": 8192, "num_hidden_layers": 8, "num_attention_heads": 32,
            "num_key_value_heads": 8})");
    auto& config = asked_.config;
    config.model.model_name_or_path = folder_.string();
    config.model.train_from_scratch = true;
    config.data.block_size = 16384;
    config.batch.per_device_train_batch_size = 8;
    config.batch.gradient_accumulation_steps = 4;
    config.checkpoint.output_dir = (folder_ / "out").string();
  }

  Ladder ladder() const {
    auto settled = asked_;
    settle_autos(settled, machine_);
    return {asked_, settled, machine_};
  }
  // Each word that is given up, from top to bottom.
  std::vector<std::string> rungs() const {
    std::vector<std::string> found;
    const auto tried = ladder();
    for (auto words = tried.lower(""); !words.empty(); words = tried.lower(words)) {
      found.push_back(words);
    }
    return found;
  }
  void record(const std::string& words, int64_t ranks, int64_t rows) const {
    fs::create_directories(folder_ / "out");
    checkpoint::write_record(folder_ / "out", {.starts = {},
                                               .given_up = {{words, ranks, rows}},
                                               .files = {},
                                               .removing_starts = {},
                                               .removing_files = {}});
  }

  config::Resolved asked_;
  Machine machine_{.ranks = 4,
                   .local_ranks = 4,
                   .place = {.device = config::Device::kCuda, .has_nccl = true},
                   .memory = {.host = 1, .gpu = uint64_t{1000} << 30}};
};

TEST_F(LadderTest, TheMicroBatchIsHalvedThenBlocksAreRecomputedThenMoreIsDivided) {
  const auto found = rungs();
  ASSERT_GE(found.size(), 5);
  EXPECT_EQ(found[0], "per_device_train_batch_size=4 gradient_accumulation_steps=8");
  EXPECT_EQ(found[1], "per_device_train_batch_size=2 gradient_accumulation_steps=16");
  EXPECT_EQ(found[2], "per_device_train_batch_size=1 gradient_accumulation_steps=32");
  EXPECT_EQ(found[3], found[2] + " gradient_checkpointing=true");
  EXPECT_TRUE(found[4].starts_with(found[3] + " distributed_strategy=zero")) << found[4];
}

TEST_F(LadderTest, TheGlobalBatchStaysAndEachRungNeedsLess) {
  auto settled = asked_;
  settle_autos(settled, machine_);
  const RunMemory memory(settled.config, read_hf_config(folder_), machine_, 16384);
  const auto global = config::plan_batches(settled, machine_.ranks).global;
  auto before = memory.needs(asked_choice(settled.config, config::plan_batches(settled, 4)));
  for (const auto& words : rungs()) {
    const auto resolved = ladder().without(words);
    const auto batches = config::plan_batches(resolved, machine_.ranks);
    EXPECT_EQ(batches.global, global) << words;
    const auto needs = memory.needs(asked_choice(resolved.config, batches));
    EXPECT_LT(needs.needed(), before.needed()) << words;
    before = needs;
  }
}

TEST_F(LadderTest, WhatWasGivenStays) {
  asked_.config.parallel.distributed_strategy = config::Strategy::kZero1;
  asked_.config.batch.auto_find_batch_size = true;
  asked_.origins["gradient_checkpointing"] = {};
  EXPECT_TRUE(ladder().is_open());
  for (const auto& words : rungs()) {
    EXPECT_EQ(words.find("distributed_strategy"), std::string::npos) << words;
    EXPECT_EQ(words.find("gradient_checkpointing"), std::string::npos) << words;
  }
  asked_.config.batch.auto_find_batch_size = false;
  EXPECT_FALSE(ladder().is_open());
}

TEST_F(LadderTest, ALaterStartBeginsWhereTheRecordSays) {
  const std::string words = "per_device_train_batch_size=2 gradient_accumulation_steps=16";
  EXPECT_EQ(ladder().recorded(), "");
  record(words, 4, 32);
  EXPECT_EQ(ladder().recorded(), words);
  EXPECT_EQ(ladder().lower(words), "per_device_train_batch_size=1 gradient_accumulation_steps=32");
  record(words, 2, 32);
  EXPECT_EQ(ladder().recorded(), "") << "of two ranks";
  record(words, 4, 64);
  EXPECT_EQ(ladder().recorded(), "") << "of another batch";
  record(words, 4, 32);
  asked_.config.checkpoint.fresh = true;
  EXPECT_EQ(ladder().recorded(), "");
  asked_.config.checkpoint.fresh = false;
  asked_.config.parallel.distributed_strategy = config::Strategy::kDdp;
  EXPECT_EQ(ladder().recorded(), "") << "nothing is left to auto";
}

TEST_F(LadderTest, WhatIsTypedNowCountsMoreThanTheRecord) {
  const std::string rows = "per_device_train_batch_size=1 gradient_accumulation_steps=32";
  record(rows +
             " gradient_checkpointing=true distributed_strategy=zero3 offload_optimizer=cpu "
             "offload_ratio=0.25",
         4, 32);
  asked_.config.batch.auto_find_batch_size = true;
  asked_.config.parallel.distributed_strategy = config::Strategy::kZero2;
  EXPECT_EQ(ladder().recorded(), rows + " gradient_checkpointing=true");
  asked_.origins["gradient_checkpointing"] = {};
  EXPECT_EQ(ladder().recorded(), rows);
}

// As the advice after a rung says.
TEST_F(LadderTest, ASmallerMicroBatchThatIsTypedCounts) {
  record("per_device_train_batch_size=4 gradient_accumulation_steps=8 gradient_checkpointing=true",
         4, 32);
  asked_.config.batch.per_device_train_batch_size = 2;
  asked_.config.batch.gradient_accumulation_steps = 16;
  EXPECT_EQ(ladder().recorded(), "gradient_checkpointing=true");
  EXPECT_FALSE(ladder().lower("gradient_checkpointing=true").empty());
}

TEST_F(LadderTest, AdviceNamesTheNextRung) {
  auto settled = asked_;
  settle_autos(settled, machine_);
  EXPECT_TRUE(advice_without_memory(settled, machine_)
                  .starts_with("per_device_train_batch_size=4 gradient_accumulation_steps=8 needs "
                               "about "));
}

}  // namespace
}  // namespace skein::plan
