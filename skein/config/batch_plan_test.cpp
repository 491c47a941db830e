// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/batch_plan.h"

#include "skein/config/test_support.h"

namespace skein::config {
namespace {

class BatchPlanTest : public ConfigTest {
 protected:
  BatchPlan plan(const std::string& yaml, int64_t ranks,
                 const std::vector<std::string>& words = {}) const {
    return plan_batches(load_yaml(yaml, words), ranks);
  }
  std::string plan_error(const std::string& yaml, int64_t ranks) const {
    return without_folder(refusal<UserError>([&] { plan(yaml, ranks); }));
  }
};

TEST_F(BatchPlanTest, TwoGiveTheThird) {
  struct Case {
    const char* yaml;
    int64_t ranks, per_device, accumulation, global;
  };
  const Case cases[] = {
      {"", 4, 8, 1, 32},
      {"gradient_accumulation_steps: 4", 2, 8, 4, 64},
      {"per_device_train_batch_size: 4", 2, 4, 1, 8},
      {"global_batch_size: 64", 4, 16, 1, 64},
      {"global_batch_size: 64\nmicro_batch_size: 4", 4, 4, 4, 64},
      {"global_batch_size: 64\ngradient_accumulation_steps: 2", 4, 8, 2, 64},
      {"per_device_train_batch_size: 4\ngradient_accumulation_steps: 2", 4, 4, 2, 32},
      // The bare key: global when alone, per device beside accumulation.
      {"training:\n  batch_size: 32", 4, 8, 1, 32},
      {"training:\n  batch_size: 8\n  accumulation_steps: 4", 4, 8, 4, 128},
      {"batch_size: 32\nper_device_train_batch_size: 4", 4, 4, 2, 32},
      {"batch_size: 8\ngradient_accumulation_steps: 4\nglobal_batch_size: 64", 2, 8, 4, 64},
      {"training:\n  dataloader:\n    batch_size: 8\n  gradient_accumulation_steps: 4", 4, 8, 4,
       128},
      {"dataloader: {batch_size: 8}", 4, 8, 1, 32},
  };
  for (const auto& c : cases) {
    const auto got = plan(c.yaml, c.ranks);
    EXPECT_EQ(got.per_device, c.per_device) << c.yaml;
    EXPECT_EQ(got.accumulation, c.accumulation) << c.yaml;
    EXPECT_EQ(got.global, c.global) << c.yaml;
    EXPECT_EQ(got.ranks, c.ranks);
  }
}

TEST_F(BatchPlanTest, SaysWhereEachNumberCameFrom) {
  const auto got = plan("batch_size: 256\nblock_size: 1024\n", 8);
  EXPECT_EQ(got.line(),
            "effective batch size: 256 = 32 per device x 1 accumulation x 8 ranks (262144 tokens "
            "per step)");
  EXPECT_EQ(without_folder(got.global_origin), "run.yaml:1:1 (batch_size, read as global)");
  EXPECT_EQ(got.per_device_origin, "global / (accumulation x ranks)");
  EXPECT_EQ(got.accumulation_origin, "default");
  EXPECT_PRED2(contains, got.table(), "accumulation         1  default\n");
  EXPECT_PRED2(contains, plan("", 1, {"batch_size=4"}).global_origin, "command line");
}

TEST_F(BatchPlanTest, TheReadingOfTheBareKeyIsNoted) {
  EXPECT_PRED2(contains, notes_of(load_yaml("batch_size: 8")), "is read as the global batch");
  EXPECT_PRED2(contains, notes_of(load_yaml("batch_size: 8\naccumulation_steps: 2")),
               "is read as per device");
  EXPECT_PRED2(contains, error_of("batch_size: 8\nglobal_batch_size: 8"),
               "run.yaml:1:1: 'batch_size' is read as the global batch");
  EXPECT_PRED2(contains, error_of("batch_size: 8\naccumulation_steps: 2\nmicro_batch_size: 8"),
               "'micro_batch_size' is given too (run.yaml:3:1); keep one");
}

TEST_F(BatchPlanTest, TheBareKeyFollowsPrecedenceToo) {
  EXPECT_EQ(plan("global_batch_size: 32", 4, {"--batch_size", "64"}).global, 64);
  EXPECT_EQ(plan("batch_size: 32", 4, {"global_batch_size=64"}).global, 64);
  EXPECT_EQ(plan("batch_size: 8\naccumulation_steps: 2", 1, {"micro_batch_size=4"}).global, 8);
  EXPECT_EQ(plan("batch_size: 32", 4, {"accumulation_steps=4"}).per_device, 2);
  EXPECT_EQ(plan("accumulation_steps: 4", 4, {"batch_size=32"}).per_device, 32);
  // A saved configuration is full of nulls: they are not "beside".
  const auto saved = to_yaml(load_yaml("batch_size: 32"));
  EXPECT_EQ(plan(saved, 4, {"batch_size=64"}).per_device, 16);
}

TEST_F(BatchPlanTest, AFileMadeForOneRankIsRefusedOnFourWithTheWaysOut) {
  const std::string yaml =
      "deepspeed: {train_batch_size: 32, train_micro_batch_size_per_gpu: 4, "
      "gradient_accumulation_steps: 8}\n";
  EXPECT_EQ(plan(yaml, 1).global, 32);
  const auto error = plan_error(yaml, 4);
  for (const auto* part :
       {"x 4 ranks = 128, but the global batch is 32 (run.yaml:1:13 (train_batch_size))",
        "global_batch_size=128 (or \"auto\" in the DeepSpeed file)",
        "gradient_accumulation_steps=2", "per_device_train_batch_size=1", "1 rank instead of 4",
        "batch_conflict=keep_micro"}) {
    EXPECT_PRED2(contains, error, part);
  }
  EXPECT_EQ(plan(yaml + "batch_conflict: keep_micro\n", 4).global, 128);
  const auto kept = plan(yaml + "batch_conflict: keep_global\n", 4);
  EXPECT_EQ(kept.global, 32);
  EXPECT_EQ(kept.accumulation, 2);
}

TEST_F(BatchPlanTest, OverridingTheFileDerivesTheRest) {
  const std::string yaml =
      "deepspeed: {train_batch_size: 32, train_micro_batch_size_per_gpu: 4, "
      "gradient_accumulation_steps: 8}\n";
  EXPECT_EQ(plan(yaml, 4, {"gradient_accumulation_steps=2"}).global, 32);
  EXPECT_EQ(plan(yaml, 2, {"per_device_train_batch_size=1"}).global, 16);
  EXPECT_EQ(plan(yaml, 2, {"global_batch_size=64"}).accumulation, 8);
  EXPECT_EQ(plan(yaml, 2, {"--batch_size", "16"}).accumulation, 2);
  EXPECT_EQ(plan(yaml, 1, {"global_batch_size=64", "gradient_accumulation_steps=2"}).per_device,
            32);
}

TEST_F(BatchPlanTest, WhatDoesNotDivideIsRefusedWithWhatWould) {
  EXPECT_PRED2(contains, plan_error("global_batch_size: 30", 4),
               "global_batch_size=28 or global_batch_size=32");
  EXPECT_PRED2(contains, plan_error("batch_size: 2", 4), "ways to close it: global_batch_size=4,");
  EXPECT_PRED2(contains, plan_error("micro_batch_size: 4e15\naccumulation_steps: 4e15", 4),
               "multiply to more");
}

}  // namespace
}  // namespace skein::config
