// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/online.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "skein/config/online_values.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/plan/continuation.h"
#include "skein/plan/cost/cache_page.h"
#include "skein/plan/outlook.h"
#include "skein/plan/preferences.h"
#include "skein/plan/refusals.h"
#include "skein/plan/run_data.h"
#include "skein/plan/run_model.h"
#include "skein/text/test_tokenizer.h"

namespace skein::plan {
namespace {

constexpr Machine kHere{.memory = {.host = uint64_t{1} << 40}};

// A tiny GPT-2 without weights that chats, a reward model beside it, and three prompts.
class OnlineTest : public TemporaryFolder {
 protected:
  OnlineTest() {
    write_model("model", "");
    write_model("rm", R"("architectures": ["GPT2ForSequenceClassification"], "num_labels": 1,)");
    for (const char* name : {"model", "rm"}) {
      write(fmt::format("{}/model.safetensors", name), std::string("\x02\0\0\0\0\0\0\0{}", 10));
    }
    write("prompts.jsonl",
          "{\"question\": \"1 + 1?\", \"answer\": \"2\"}\n{\"prompt\": \"Say hi\"}\n"
          "{\"question\": \"3?\"}\n");
  }

  void write_model(const std::string& name, const std::string& keys,
                   const std::vector<std::string>& specials = {"</s>", "<|im_start|>",
                                                               "<|im_end|>"}) {
    write(name + "/config.json",
          fmt::format(R"({{"model_type": "gpt2", {} "vocab_size": 1003, "n_positions": 64,
                          "n_embd": 32, "n_layer": 2, "n_head": 4, "attn_pdrop": 0}})",
                      keys));
    write(name + "/tokenizer.json", text::byte_tokenizer_json(specials));
    write(name + "/tokenizer_config.json", R"({"eos_token": "</s>"})");
  }

  config::Resolved resolved(const std::string& yaml) const {
    return config::load_text(
        fmt::format("model_name_or_path: {0}/model\ntrain_from_scratch: true\ntemplate: chatml\n"
                    "train_file: {0}/prompts.jsonl\ndata_cache_dir: {0}/cache\n"
                    "output_dir: {0}/out\nmax_prompt_length: 44\nmax_completion_length: 16\n"
                    "device: cpu\n{1}\n",
                    folder_.string(), yaml),
        "run.yaml");
  }

  Outlook look(const std::string& yaml) const { return look_ahead(resolved(yaml), kHere); }

  std::string refused(const std::string& yaml) const {
    return refusal<UserError>([&] {
      const auto run = resolved(yaml);
      check_run(run, 1, kHere.place);
      look_ahead(run, kHere);
    });
  }

  std::string rm() const { return "reward_model: " + (folder_ / "rm").string() + "\n"; }
};

TEST_F(OnlineTest, APlanOfEachStageIsWhole) {
  const auto grpo = look("stage: grpo\nreward_funcs: accuracy\nnum_generations: 4\n");
  ASSERT_TRUE(grpo.rollout && grpo.steps && grpo.model);
  EXPECT_EQ(grpo.rollout->prompts, 2);
  EXPECT_EQ(grpo.data.rows, 3);
  EXPECT_EQ(grpo.steps->steps_per_epoch, 2);
  EXPECT_EQ(grpo.steps->total_steps, 6);
  EXPECT_PRED2(contains, grpo.batches.line(), "(480 tokens per update at most)");
  // The longest of these prompts, and an answer.
  EXPECT_EQ(grpo.model->tokens, grpo.data.longest + 16);
  const auto& own = grpo.model->stages[0];
  EXPECT_EQ(own.critic, 0);
  EXPECT_EQ(own.reward, 0);
  EXPECT_EQ(own.reference, 0);
  EXPECT_EQ(own.cache, 2 * 2 * 32 * (cache_pages(grpo.model->tokens) + 1) * 16 * 4);
  EXPECT_EQ(grpo.disk->critic_bytes, 0U);
  EXPECT_EQ(look("stage: rloo\nreward_funcs: accuracy\n").rollout->prompts, 2);
}

TEST_F(OnlineTest, PromptsAreSharedWhereTheCriticTakesThemToo) {
  const std::string scores = R"("architectures": ["GPT2ForSequenceClassification"], )"
                             R"("num_labels": 1, "resid_pdrop": 0, )";
  write_model("plain", R"("embd_pdrop": 0, "resid_pdrop": 0,)");
  write_model("still", scores + R"("embd_pdrop": 0,)");
  write_model("draws", scores + R"("embd_pdrop": 0.5,)");
  for (const char* name : {"plain", "still", "draws"}) {
    write(fmt::format("{}/model.safetensors", name), std::string("\x02\0\0\0\0\0\0\0{}", 10));
  }
  const auto notes = [&](const std::string& critic) {
    const auto yaml = fmt::format(
        "stage: ppo\nnum_generations: 2\nreward_model: {0}/still\ncritic_model: {0}/{1}\n",
        folder_.string(), critic);
    auto run = resolved(yaml);
    run.config.model.model_name_or_path = (folder_ / "plain").string();
    const auto model = read_run_model(run.config);
    const auto note = sharing_note(run.config, model);
    EXPECT_EQ(shares_prompts(run.config, model), note.empty());
    const auto outlook = look_ahead(run, kHere);
    EXPECT_EQ(std::ranges::count(outlook.reasons, note), note.empty() ? 0 : 1);
    return note;
  };
  EXPECT_EQ(notes("still"), "");
  const auto note = notes("draws");
  EXPECT_PRED2(contains, note, "share_prompts is off");
  EXPECT_PRED2(contains, note, "draws: config.json: embd_pdrop is 0.5");
}

TEST_F(OnlineTest, OfPpoAllModelsAreCounted) {
  const auto grpo = look("stage: grpo\nreward_funcs: accuracy\n");
  const auto ppo = look("stage: ppo\n" + rm());
  const auto& alone = grpo.model->stages[0];
  const auto& all = ppo.model->stages[0];
  EXPECT_GT(all.reward, 0);
  EXPECT_EQ(all.reference, alone.flat.weights);
  EXPECT_GT(all.critic, all.reward);  // gradients and states too
  EXPECT_GE(all.peak, alone.peak + all.reward + all.reference + all.critic);
  EXPECT_GT(ppo.disk->critic_bytes, ppo.disk->model_bytes);
  EXPECT_EQ(ppo.disk->total_bytes,
            ppo.disk->model_bytes +
                ppo.disk->checkpoints *
                    (ppo.disk->model_bytes + ppo.disk->optimizer_bytes + ppo.disk->critic_bytes));
  EXPECT_EQ(look("stage: ppo\nkl_coef: 0\n" + rm()).model->stages[0].reference, 0);
  const auto cached = look("stage: grpo\nreward_funcs: accuracy\nrollout_cache_size: 1GiB\n");
  EXPECT_EQ(cached.model->stages[0].cache, int64_t{1} << 30);
  EXPECT_GT(cached.model->stages[0].peak, int64_t{1} << 30);
}

TEST_F(OnlineTest, TheCriticBeginsFromWhatIsNearestToIt) {
  const auto folder_of = [&](const std::string& yaml) {
    const auto critic = critic_config(resolved(yaml).config);
    EXPECT_EQ(critic.stage, config::TrainingStage::kReward);
    return fs::path(critic.model.model_name_or_path).filename().string();
  };
  EXPECT_EQ(folder_of("stage: ppo\nreward_funcs: accuracy\n"), "model");
  EXPECT_TRUE(critic_config(resolved("stage: ppo\n").config).model.train_from_scratch);
  EXPECT_EQ(folder_of("stage: ppo\n" + rm()), "rm");
  EXPECT_FALSE(critic_config(resolved("stage: ppo\n" + rm()).config).model.train_from_scratch);
  EXPECT_EQ(folder_of("stage: ppo\nreward_retokenize: true\n" + rm()), "model");
  EXPECT_EQ(folder_of("stage: ppo\ncritic_model: /other\n" + rm()), "other");
  const auto rate = resolved("stage: ppo\ncritic_learning_rate: 0.01\n");
  EXPECT_EQ(critic_config(rate.config).optimizer.learning_rate, 0.01);
}

TEST_F(OnlineTest, TheReferenceIsThatOfOtherStagesWhereADistanceCounts) {
  const auto reference = [&](const std::string& yaml) {
    return reference_of(resolved(yaml).config);
  };
  EXPECT_EQ(reference("stage: grpo\n"), Reference::kNone);
  EXPECT_EQ(reference("stage: grpo\nbeta: 0.04\n"), Reference::kCopy);
  EXPECT_EQ(reference("stage: grpo\nbeta: 0.04\nfinetuning_type: lora\n"),
            Reference::kWithoutAdapters);
  EXPECT_EQ(reference("stage: ppo\n"), Reference::kCopy);
  EXPECT_EQ(reference("stage: rloo\nkl_coef: 0\n"), Reference::kNone);
}

TEST_F(OnlineTest, WhatCannotLearnIsRefusedBeforeRanksStart) {
  const std::pair<std::string, std::string> cases[] = {
      {"stage: grpo\n", "stage: grpo has no reward: give reward_funcs=NAME"},
      {"stage: grpo\nreward_funcs: acuracy\n", "did you mean 'accuracy'"},
      {"stage: grpo\nreward_funcs: [accuracy, boxed]\nreward_weights: [1]\n",
       "'reward_weights' has 1 numbers for 2 rewards (accuracy, boxed): give one for each"},
      {"stage: ppo\nreward_weights: [1, 2]\n" + rm(), "2 numbers for 1 rewards (reward_model)"},
      {"stage: grpo\nreward_funcs: accuracy\nnum_generations: 1\n",
       "num_generations is 1, but advantage_estimator: group compares"},
      {"stage: ppo\nreward_funcs: accuracy\nadvantage_estimator: rloo\n",
       "advantage_estimator: rloo compares"},
      {"stage: grpo\nreward_funcs: accuracy\nglobal_batch_size: 12\n", "groups do not divide"},
      {"stage: grpo\nreward_funcs: accuracy\nbeta: 0.1\nkl_target: 6\n",
       "'kl_target' moves the price that lowers rewards, and kl_in is loss"},
      {"stage: grpo\nreward_funcs: accuracy\nneftune_noise_alpha: 5\n", "compares probabilities"},
      {"stage: grpo\nreward_model: " + (folder_ / "model").string(),
       "is no reward model but one that writes text, and the very model that trains"},
  };
  for (const auto& [yaml, message] : cases) {
    EXPECT_PRED2(contains, refused(yaml), message) << yaml;
  }
  EXPECT_PRED2(contains, refused("stage: grpo\nreward_model: /nowhere\n"), "/nowhere");
}

TEST_F(OnlineTest, ModelsThatDoNotGoTogetherAreRefused) {
  EXPECT_EQ(refused("stage: ppo\n" + rm()), "");
  write_model("rm", R"("architectures": ["GPT2ForSequenceClassification"], "num_labels": 1,)",
              {"</s>", "<|user|>", "<|im_end|>"});
  EXPECT_PRED2(contains, refused("stage: ppo\n" + rm()),
               "reads other tokens than the model writes: id 1001 is \"<|user|>\" there and "
               "\"<|im_start|>\" here; reward_retokenize=true reads the texts anew");
  EXPECT_EQ(refused("stage: ppo\nreward_retokenize: true\n" + rm()), "");
  fs::remove(folder_ / "rm/tokenizer.json");
  EXPECT_PRED2(contains, refused("stage: grpo\n" + rm()), "has no tokenizer");
  // The other way round.
  write_model("model", R"("architectures": ["GPT2ForSequenceClassification"], "num_labels": 1,)");
  EXPECT_PRED2(contains, refused("stage: grpo\nreward_funcs: accuracy\n"), "is a reward model");
}

TEST_F(OnlineTest, AnswersNeedPositionsAndAnEnd) {
  auto run = resolved("stage: grpo\nreward_funcs: accuracy\n");
  run.config.rollout.max_completion_length = 30;
  EXPECT_PRED2(contains, refusal<UserError>([&] { check_run(run, 1, kHere.place); }),
               "max_prompt_length + max_completion_length is 44 + 30 = 74, but the model knows 64 "
               "positions: lower one of them");
  run.config.rollout.max_prompt_length = 0;  // then the longest prompt decides
  run.config.rollout.max_completion_length = 45;
  EXPECT_PRED2(contains, refusal<UserError>([&] { look_ahead(run, kHere); }),
               "and its answer up to 45, but the model knows 64 positions");
  write_model("model", "", {"<a>", "<b>", "<c>"});
  write("model/tokenizer_config.json", "{}");
  auto tokenizer = read_file(folder_ / "model/tokenizer.json");
  for (size_t at; (at = tokenizer.find("endoftext")) != std::string::npos;) tokenizer[at] = 'x';
  write("model/tokenizer.json", tokenizer);
  write("prompts.jsonl", "{\"prompt\": \"a\"}\n");
  auto endless = resolved("stage: grpo\nreward_funcs: accuracy\n");
  endless.config.rows.chat_format.clear();
  EXPECT_PRED2(contains, refusal<UserError>([&] { check_run(endless, 1, kHere.place); }),
               "nothing ends an answer of");
  endless.config.rollout.stop = {"\n"};
  EXPECT_EQ(refusal<UserError>([&] { check_run(endless, 1, kHere.place); }), "");
}

TEST_F(OnlineTest, PromptsOfAStepAreWhatARunIsContinuedWith) {
  const auto run = resolved("stage: grpo\nreward_funcs: accuracy\nnum_generations: 4\n");
  const auto model = read_run_model(run.config);
  const auto identity = identity_before_data(run, config::plan_batches(run, 1), model);
  EXPECT_EQ(identity.global_batch, 2);
  EXPECT_EQ(identity.block_size, 44);
  EXPECT_EQ(identity.block_size_key, "max_prompt_length");
}

TEST_F(OnlineTest, UpdatesStayWhereMicroBatchesAreChosen) {
  auto run = resolved(
      "stage: grpo\nreward_funcs: accuracy\nglobal_batch_size: 16\nper_device_train_batch_size: "
      "auto\n"
      "steps_per_generation: 2\n");
  settle_autos(run, kHere);
  EXPECT_FALSE(run.config.policy.steps_per_generation);
  EXPECT_EQ(run.config.policy.num_mini_batches, 2);
  EXPECT_EQ(rollout_plan(run.config, config::plan_batches(run, 1)).prompts, 4);
}

TEST_F(OnlineTest, PromptsArePreparedForTheLoader) {
  const auto run = resolved("stage: grpo\nreward_funcs: accuracy\n");
  prepare_data(run.config);
  check_prepared(run, 1);
  const auto samples = open_samples(run.config, read_run_model(run.config));
  EXPECT_EQ(samples.train.source->count(), 3);
  EXPECT_EQ(samples.train.source->num_targets(0), 0);
}

}  // namespace
}  // namespace skein::plan
