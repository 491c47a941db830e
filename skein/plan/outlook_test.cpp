// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/outlook.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::plan {
namespace {

// A tiny GPT-2 without weights, and 1,000 bytes of text.
class OutlookTest : public TemporaryFolder {
 protected:
  OutlookTest() {
    write("model/config.json", R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                   "n_embd": 32, "n_layer": 2, "n_head": 4, "attn_pdrop": 0})");
    write("text.txt", std::string(1000, 'a'));
    auto& config = resolved_.config;
    config.model.model_name_or_path = (folder_ / "model").string();
    config.model.train_from_scratch = true;
    config.data.train_file = (folder_ / "text.txt").string();
    config.data.block_size = 32;
    config.checkpoint.output_dir = (folder_ / "out").string();
  }

  config::RunConfig& config() { return resolved_.config; }

  Outlook look(const Machine& machine = {.memory = {.host = uint64_t{1} << 40}}) {
    return look_ahead(resolved_, machine);
  }

  std::string why_refused() {
    return refusal<UserError>([&] { look(); });
  }

  config::Resolved resolved_;
};

constexpr Machine kNewGpus{.ranks = 2, .place = {config::Device::kCuda, true}};
constexpr Machine kOldGpus{.ranks = 2, .place = {config::Device::kCuda, false}};

TEST_F(OutlookTest, CountsStepsAsTheLoaderDoes) {
  // 1,001 tokens (an end token) are 31 blocks of 32 and one of 9; 8 per step.
  const auto outlook = look();
  EXPECT_EQ(outlook.data.tokens, 1001);
  EXPECT_EQ(outlook.data.blocks, 32);
  EXPECT_EQ(outlook.steps->steps_per_epoch, 4);
  EXPECT_EQ(outlook.steps->total_steps, 12);
}

TEST_F(OutlookTest, AllOfTheStepsCanBeWarmUp) {
  config().schedule.warmup_ratio = 1;
  EXPECT_EQ(look().steps->warmup_steps, 12);
}

TEST_F(OutlookTest, AutoIsBfloat16OnlyWhereGpusHaveIt) {
  EXPECT_EQ(look(kNewGpus).dtype, DType::kBF16);
  EXPECT_EQ(look(kOldGpus).dtype, DType::kF32);
  EXPECT_EQ(look().dtype, DType::kF32);
  config().model.dtype = DType::kBF16;
  EXPECT_EQ(look(kOldGpus).dtype, DType::kBF16);
  EXPECT_TRUE(look(kNewGpus).warnings.empty());
  ASSERT_EQ(look(kOldGpus).warnings.size(), 1U);
  EXPECT_TRUE(contains(look(kOldGpus).warnings[0], "emulate"));
}

TEST_F(OutlookTest, RefusesWhatTrainRefuses) {
  config().data.block_size = 65;
  EXPECT_TRUE(contains(why_refused(), "block_size is 65, but the model knows 64 positions"));
  config().data.block_size = 64;
  config().model.train_from_scratch = false;
  EXPECT_TRUE(contains(why_refused(), "holds neither model.safetensors nor"));
  config().model.train_from_scratch = true;
  config().data.train_file = "nowhere.txt";
  EXPECT_TRUE(contains(why_refused(), "train_file: nowhere.txt does not exist"));
  config().data.train_file = "";
  config().data.eval_file = "nowhere.txt";
  EXPECT_TRUE(contains(why_refused(), "eval_file: nowhere.txt does not exist"));
}

TEST_F(OutlookTest, ARunThatContinuesNeedsNoOtherWeights) {
  config().model.train_from_scratch = false;
  fs::create_directories(folder_ / "out" / "checkpoint-3");
  EXPECT_EQ(why_refused(), "");
  config().checkpoint.fresh = true;
  EXPECT_TRUE(contains(why_refused(), "holds neither"));
}

TEST_F(OutlookTest, WhatIsNotGivenIsLeftOut) {
  config().model.model_name_or_path = config().data.train_file = config().checkpoint.output_dir =
      "";
  const auto outlook = look();
  EXPECT_FALSE(outlook.model);
  EXPECT_FALSE(outlook.steps);
  EXPECT_TRUE(outlook.files.empty());
}

}  // namespace
}  // namespace skein::plan
