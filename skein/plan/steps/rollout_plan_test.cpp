// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/steps/rollout_plan.h"

#include <gtest/gtest.h>

#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::plan {
namespace {

RolloutPlan plan_of(const std::string& yaml, int64_t ranks = 1) {
  const auto resolved = config::load_text(yaml, "run.yaml");
  return rollout_plan(resolved.config, config::plan_batches(resolved, ranks));
}

std::string refusal_of(const std::string& yaml, int64_t ranks = 1) {
  return refusal<UserError>([&] { plan_of(yaml, ranks); });
}

TEST(RolloutPlan, AStepIsOneRolloutAndAllItsUpdates) {
  const auto plan = plan_of(
      "stage: grpo\nnum_generations: 4\nper_device_train_batch_size: 2\n"
      "gradient_accumulation_steps: 2\nnum_mini_batches: 3\nnum_iterations: 2\n"
      "max_prompt_length: 100\nmax_completion_length: 28\n",
      2);
  EXPECT_EQ(plan, (RolloutPlan{.prompts = 6,
                               .generations = 4,
                               .completions = 24,
                               .mini_batches = 3,
                               .iterations = 2,
                               .updates_per_step = 6,
                               .most_tokens = 24 * 128}));
  EXPECT_EQ(plan.line(),
            "a step: 6 prompts x 4 generations = 24 completions, 6 updates (3 mini-batches x 2 "
            "iterations), at most 3,072 tokens");
}

TEST(RolloutPlan, EachStageHasItsOwnDefaults) {
  const auto ppo = plan_of("stage: ppo\n"), grpo = plan_of("stage: grpo\n"),
             rloo = plan_of("stage: rloo\n");
  EXPECT_EQ(ppo.generations, 1);
  EXPECT_EQ(ppo.updates_per_step, 4);
  EXPECT_EQ(ppo.prompts, 8);
  EXPECT_EQ(grpo.generations, 8);
  EXPECT_EQ(grpo.updates_per_step, 1);
  EXPECT_EQ(grpo.prompts, 1);
  EXPECT_EQ(rloo.generations, 4);
  EXPECT_EQ(rloo.prompts, 2);
}

TEST(RolloutPlan, TheWordsOfOtherTrainersSayHowManyMiniBatches) {
  const std::string batch =
      "stage: grpo\nnum_generations: 8\nper_device_train_batch_size: 4\n"
      "gradient_accumulation_steps: 4\n";
  EXPECT_EQ(plan_of(batch + "steps_per_generation: 8\n").mini_batches, 2);
  EXPECT_EQ(plan_of(batch + "generation_batch_size: 64\n", 2).mini_batches, 2);
  EXPECT_EQ(plan_of(batch + "generation_batch_size: 32\nsteps_per_generation: 8\n").mini_batches,
            2);
  EXPECT_EQ(plan_of(batch + "ppo_buffer_size: 2\n").prompts, 4);
  EXPECT_PRED2(contains, refusal_of(batch + "steps_per_generation: 6\n"),
               "steps_per_generation=6 is not a multiple of gradient_accumulation_steps, 4");
  EXPECT_PRED2(contains, refusal_of(batch + "steps_per_generation: 6\n"), "steps_per_generation=8");
  EXPECT_PRED2(contains, refusal_of(batch + "generation_batch_size: 40\n"),
               "not a multiple of the global batch");
  EXPECT_PRED2(contains, refusal_of(batch + "num_mini_batches: 1\nsteps_per_generation: 8\n"),
               "num_mini_batches=1 means 1 updates from a step's answers, and "
               "steps_per_generation=8 means 2: keep one of the two");
}

TEST(RolloutPlan, GroupsThatDoNotDivideAreRefusedWithTheWaysToCloseThem) {
  const auto text = refusal_of(
      "stage: grpo\nnum_generations: 8\nper_device_train_batch_size: 3\n"
      "gradient_accumulation_steps: 2\n",
      2);
  EXPECT_PRED2(contains, text, "groups do not divide: a step has 12 answers");
  EXPECT_PRED2(contains, text, "global_batch_size=16");
  EXPECT_PRED2(contains, text, "num_mini_batches=2");
  EXPECT_PRED2(contains, text, "num_generations=4");
  // Each of the three closes it.
  EXPECT_EQ(plan_of("stage: grpo\nnum_generations: 8\nglobal_batch_size: 12\nnum_mini_batches: 2\n")
                .prompts,
            3);
  EXPECT_EQ(plan_of("stage: grpo\nnum_generations: 4\nglobal_batch_size: 12\n").prompts, 3);
}

TEST(RolloutPlan, OtherStagesTakeTheGlobalBatch) {
  const auto resolved = config::load_text("stage: sft\nglobal_batch_size: 12\n", "run.yaml");
  EXPECT_EQ(samples_per_step(resolved.config, config::plan_batches(resolved, 2)), 12);
}

}  // namespace
}  // namespace skein::plan
