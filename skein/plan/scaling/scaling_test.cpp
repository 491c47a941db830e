// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/scaling/scaling.h"

#include <gtest/gtest.h>

#include "skein/plan/cost/flops.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {
namespace {

// GPT-2 of 124M.
HfConfig gpt2() {
  return parse_hf_config(R"({"model_type": "gpt2", "attn_pdrop": 0})", "config.json");
}

StepQuestion question(const char* gpu) {
  return {.choice = {.per_device = 16},
          .tokens = 1024,
          .gpu = report::find_gpu(gpu),
          .utilisation = 0.5};
}

TEST(Scaling, ComputeIsFlopsAtTheStatedUtilisation) {
  const auto model = gpt2();
  const auto asked = question("A100");
  const auto time = predict_step(model.shapes(), model.dimensions(), asked, {});
  const double flops = training_flops_per_token(model.dimensions(), 1024) * 16 * 1024;
  EXPECT_NEAR(time.work.forward + time.work.backward, flops / (312e12 * 0.5), 1e-6);
  EXPECT_NEAR(time.work.backward, 2 * time.work.forward, 1e-9);
  EXPECT_GT(time.work.update, 0);
  EXPECT_EQ(time.exposed, 0);
}

TEST(Scaling, RecomputationIsOneForwardMore) {
  const auto model = gpt2();
  auto asked = question("A100");
  const auto before = predict_step(model.shapes(), model.dimensions(), asked, {});
  asked.choice.recompute = true;
  const auto after = predict_step(model.shapes(), model.dimensions(), asked, {});
  EXPECT_NEAR(after.work.backward, before.work.backward + before.work.forward, 1e-9);
}

TEST(Scaling, ShardsOfTheOptimizerAreUpdatedBySo) {
  const auto model = gpt2();
  auto asked = question("A100");
  const auto whole = predict_step(model.shapes(), model.dimensions(), asked, {1, 8}).work.update;
  asked.choice.stage = 1;
  const auto shard = predict_step(model.shapes(), model.dimensions(), asked, {1, 8}).work.update;
  EXPECT_NEAR(shard, whole / 8, 1e-9);
}

TEST(Scaling, AMeasuredStepTakesThePlaceOfFlops) {
  const auto model = gpt2();
  auto asked = question("A100");
  asked.gpu = nullptr;
  asked.compute_seconds = 3;
  const auto time = predict_step(model.shapes(), model.dimensions(), asked, {2, 1});
  EXPECT_NEAR(time.work.seconds(), 3, 1e-9);
  EXPECT_EQ(time.work.update, 0);
  EXPECT_GT(time.exposed, 0);
}

TEST(Scaling, AMeasuredUpdateIsDividedByTheRanksFromStageOneOn) {
  const auto model = gpt2();
  auto asked = question("A100");
  asked.gpu = nullptr;
  asked.compute_seconds = 3;
  asked.update_seconds = 0.5;
  for (const int stage : {0, 1, 2, 3}) {
    asked.choice.stage = stage;
    const auto time = predict_step(model.shapes(), model.dimensions(), asked, {1, 2});
    EXPECT_NEAR(time.work.update, stage == 0 ? 0.5 : 0.25, 1e-9);
    EXPECT_NEAR(time.work.forward + time.work.backward, 2.5, 1e-9);
    EXPECT_NEAR(time.one_rank, 3, 1e-9);
  }
}

TEST(Scaling, MeasuredLinksTakeThePlaceOfStatedOnes) {
  const auto model = gpt2();
  auto asked = question("A100");
  const auto stated = predict_step(model.shapes(), model.dimensions(), asked, {2, 1});
  asked.between_rate = 1e9;
  const auto slow = predict_step(model.shapes(), model.dimensions(), asked, {2, 1});
  EXPECT_NEAR(slow.communication, stated.communication * 11.25, 1e-6);  // 90 % of 100 Gbit/s
  asked.latency = 0.5;
  const auto late = predict_step(model.shapes(), model.dimensions(), asked, {2, 1});
  EXPECT_GT(late.seconds(), slow.seconds() + 0.5);
}

TEST(Scaling, TheTableHasSevenWorldsAndFasterLinksArePaidFor) {
  const auto model = gpt2();
  for (const int stage : {0, 1, 2, 3}) {
    auto asked = question("H100");
    asked.choice.stage = stage;
    const auto rows = predict_scaling(model.shapes(), model.dimensions(), asked);
    ASSERT_EQ(rows.size(), 7U);
    for (const auto& row : rows) {
      EXPECT_GT(row.time.efficiency(), 0);
      EXPECT_LE(row.time.efficiency(), stage == 0 ? 1 : 1.1);  // the update is divided
    }
    EXPECT_LT(rows[3].time.efficiency(), rows[5].time.efficiency());  // 2 x 4 at 10 and 100
    EXPECT_LE(rows[4].time.efficiency(), rows[3].time.efficiency());  // 4 x 4 and 2 x 4 at 10
    EXPECT_GT(rows[2].time.efficiency(), rows[5].time.efficiency());  // inside one node
  }
}

}  // namespace
}  // namespace skein::plan
