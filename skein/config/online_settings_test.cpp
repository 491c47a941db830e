// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/online_settings.h"

#include "skein/config/handover.h"
#include "skein/config/online_values.h"
#include "skein/config/test_support.h"

namespace skein::config {
namespace {

using OnlineSettingsTest = ConfigTest;

TEST_F(OnlineSettingsTest, StagesAreNamedAsOthersDo) {
  EXPECT_EQ(load_yaml("stage: ppo").config.stage, TrainingStage::kPpo);
  EXPECT_EQ(load_yaml("algorithm: rloo").config.stage, TrainingStage::kRloo);
  EXPECT_EQ(load_yaml("rl: grpo").config.stage, TrainingStage::kGrpo);
  EXPECT_EQ(load_yaml("", {"--algorithm", "grpo"}).config.stage, TrainingStage::kGrpo);
}

TEST_F(OnlineSettingsTest, EachStageHasItsOwnDefaults) {
  const auto grpo = load_yaml("stage: grpo").config;
  EXPECT_EQ(generations_of(grpo), 8);
  EXPECT_EQ(iterations_of(grpo), 1);
  EXPECT_EQ(kl_coef_of(grpo), 0);
  EXPECT_EQ(kl_place_of(grpo), KlPlace::kLoss);
  EXPECT_EQ(kl_estimator_of(grpo), KlEstimator::kK3);
  EXPECT_EQ(policy_loss_of(grpo), PolicyLoss::kDapo);
  EXPECT_EQ(advantage_estimator_of(grpo), AdvantageEstimator::kGroup);
  EXPECT_FALSE(has_critic(grpo));
  const auto ppo = load_yaml("stage: ppo\nlearning_rate: 2e-6").config;
  EXPECT_EQ(generations_of(ppo), 1);
  EXPECT_EQ(iterations_of(ppo), 4);
  EXPECT_EQ(kl_coef_of(ppo), 0.05);
  EXPECT_EQ(kl_place_of(ppo), KlPlace::kReward);
  EXPECT_EQ(kl_estimator_of(ppo), KlEstimator::kK1);
  EXPECT_EQ(policy_loss_of(ppo), PolicyLoss::kPpo);
  EXPECT_EQ(advantage_estimator_of(ppo), AdvantageEstimator::kGae);
  EXPECT_EQ(critic_learning_rate_of(ppo), 2e-6);
  EXPECT_TRUE(has_critic(ppo));
  const auto rloo = load_yaml("stage: rloo\nkl_in: loss").config;
  EXPECT_EQ(generations_of(rloo), 4);
  EXPECT_EQ(advantage_estimator_of(rloo), AdvantageEstimator::kLeaveOneOut);
  EXPECT_EQ(kl_coef_of(rloo), 0.05);
  EXPECT_EQ(kl_estimator_of(rloo), KlEstimator::kK3);
  EXPECT_FALSE(has_critic(load_yaml("stage: sft").config));
}

TEST_F(OnlineSettingsTest, BetaAndLossTypeAreThoseOfTheStage) {
  const auto grpo = load_yaml("loss_type: dr_grpo\nbeta: 0.04\nstage: grpo").config;
  EXPECT_EQ(grpo.policy.kl_coef, 0.04);
  EXPECT_EQ(grpo.policy.policy_loss, PolicyLoss::kDrGrpo);
  EXPECT_EQ(grpo.preference, PreferenceConfig());
  EXPECT_EQ(load_yaml("stage: grpo\nbeta: 0").config.policy.kl_coef, 0);
  const auto dpo = load_yaml("stage: dpo\nbeta: 0.3\nloss_type: hinge").config;
  EXPECT_EQ(dpo.preference.pref_beta, 0.3);
  EXPECT_EQ(dpo.preference.pref_loss, std::vector{PreferenceLoss::kHinge});
  // The command line's stage decides.
  EXPECT_EQ(load_yaml("stage: dpo\nbeta: 0.3", {"stage=grpo"}).config.policy.kl_coef, 0.3);
  EXPECT_EQ(load_yaml("rl: grpo\ntrl:\n  beta: 0.1\n  num_generations: 3").config.policy.kl_coef,
            0.1);
  EXPECT_PRED2(contains, error_of("stage: grpo\nbeta: 0.1\nkl_coef: 0.2"),
               "'kl_coef' contradicts 'beta'");
  EXPECT_PRED2(contains, error_of("stage: grpo\nloss_type: sigmoid"), "'loss_type' must be one of");
  EXPECT_PRED2(contains, error_of("stage: grpo\nbeta: -1"), "'beta' must be at least 0");
}

TEST_F(OnlineSettingsTest, OtherTrainersNamesAreKnown) {
  const auto config = load_yaml(
                          "stage: ppo\nresponse_length: 64\nn_samples_per_prompt: 2\n"
                          "num_ppo_epochs: 3\nppo_target: 6\nppo_score_norm: true\n"
                          "ppo_whiten_rewards: true\ncliprange: 0.1\nreward_model_type: full\n"
                          "ppo_buffer_size: 2\nrl_beta: 0.2\nscale_rewards: false\n")
                          .config;
  EXPECT_EQ(config.rollout.max_completion_length, 64);
  EXPECT_EQ(config.rollout.num_generations, 2);
  EXPECT_EQ(config.policy.num_iterations, 3);
  EXPECT_EQ(config.policy.num_mini_batches, 2);
  EXPECT_EQ(config.policy.kl_target, 6);
  EXPECT_EQ(config.policy.kl_coef, 0.2);
  EXPECT_EQ(config.policy.epsilon, 0.1);
  EXPECT_EQ(config.policy.scale_rewards, ScaleRewards::kNone);
  EXPECT_TRUE(config.ppo.ppo_score_norm && config.ppo.whiten_rewards);
  const auto noted = notes_of(load_yaml("stage: grpo\nuse_vllm: true\nvllm_mode: colocate"));
  EXPECT_PRED2(contains, noted, "'use_vllm' has no effect: answers are written in this program");
  EXPECT_PRED2(contains, noted, "'vllm_mode' has no effect");
  EXPECT_PRED2(contains, notes_of(load_yaml("stage: grpo", {"--use_vllm"})), "'use_vllm'");
}

TEST_F(OnlineSettingsTest, APromptAndItsAnswerAreWhatTheModelMustHold) {
  const auto read = [&](const std::string& yaml) { return load_yaml("stage: grpo\n" + yaml); };
  EXPECT_EQ(read("").config.data.block_size, 1024);
  EXPECT_EQ(read("max_prompt_length: 100\nmax_completion_length: 20").config.data.block_size, 120);
  const auto cut = read("cutoff_len: 300");
  EXPECT_EQ(cut.config.rollout.max_prompt_length, 300);
  EXPECT_EQ(cut.config.data.block_size, 812);
  EXPECT_PRED2(contains, notes_of(cut), "'cutoff_len' is read as max_prompt_length");
  const auto both = read("cutoff_len: 300\nmax_prompt_length: 200");
  EXPECT_EQ(both.config.data.block_size, 712);
  EXPECT_PRED2(contains, notes_of(both), "'cutoff_len' has no effect");
}

TEST_F(OnlineSettingsTest, WhatIsWrittenReloadsToTheSameWithoutANote) {
  for (const char* yaml :
       {"stage: grpo\nreward_funcs: [exact_answer, 'regex:a, b']\nreward_weights: [1, 0.5]\n"
        "stop: [\"\\n\\n\", ' Question:']\ntop_k: -1\nepsilon_high: 0.28\n",
        "stage: ppo\nreward_program: python3 'my file.py' --n 3\nkl_target: 6\n"
        "cutoff_len: 64\nkl_in: loss\npolicy_loss: bnpo\n",
        "stage: ppo\nreward_program: [python3, 'it''s.py', \"a b\"]\nmax_prompt_length: 0\n"}) {
    const auto first = load_yaml(yaml);
    const auto again = load_text(to_yaml(first), "saved.yaml");
    EXPECT_EQ(again.config, first.config) << yaml;
    EXPECT_TRUE(again.notes.empty()) << notes_of(again);
  }
}

TEST_F(OnlineSettingsTest, AProgramIsSplitAsAShellWouldAndNeverExpanded) {
  using Words = std::vector<std::string>;
  const auto program = [&](const std::string& text) {
    return load_yaml("stage: grpo\nreward_program: " + text + "\n").config.reward.reward_program;
  };
  EXPECT_EQ(program("python3 a.py"), (Words{"python3", "a.py"}));
  EXPECT_EQ(program("python3 'a b.py'  $HOME \"c \\\" d\" e\\ f ''"),
            (Words{"python3", "a b.py", "$HOME", "c \" d", "e f", ""}));
  EXPECT_EQ(program("[python3, a b.py, 'c,d']"), (Words{"python3", "a b.py", "c,d"}));
  EXPECT_EQ(program("none"), Words{});
  EXPECT_PRED2(contains, error_of("stage: grpo\nreward_program: python3 'a\n"),
               "'reward_program' must be a command whose ' ends");
  EXPECT_EQ(load_yaml("stage: grpo", {"reward_program=[a, 'b c']"}).config.reward.reward_program,
            (Words{"a", "b c"}));
}

TEST_F(OnlineSettingsTest, AProgramIsNamedByWhoeverStartsTheRun) {
  write("parent.yaml", "reward_program: ./evil\n");
  EXPECT_PRED2(contains, error_of("extends: parent.yaml\nstage: grpo\n"),
               "parent.yaml:1:1: 'reward_program' names a program that the run starts");
  // Also where the run's own file hides it.
  EXPECT_PRED2(contains, error_of("extends: parent.yaml\nstage: grpo\nreward_program: mine\n"),
               "names a program that the run starts");
  write("parent.yaml", "training:\n  reward_program: ./evil\n");
  EXPECT_PRED2(contains, error_of("extends: parent.yaml\nstage: grpo\n"), "must not bring it");
  write("parent.yaml", "stage: grpo\nreward_program: none\n");
  EXPECT_EQ(load_yaml("extends: parent.yaml\n", {"reward_program=mine"})
                .config.reward.reward_program.size(),
            1U);
}

TEST_F(OnlineSettingsTest, TheBestRewardIsTheHighestWhoeverAskedForALowLoss) {
  const auto run =
      load_yaml("stage: grpo\nmetric_for_best_model: eval_loss\ngreater_is_better: false\n");
  EXPECT_EQ(run.config.eval.metric_for_best_model, "reward");
  EXPECT_EQ(run.config.eval.greater_is_better, GreaterIsBetter::kAuto);
  EXPECT_PRED2(contains, notes_of(run), "of their rewards the highest is the best");
  const auto chosen = load_yaml(
      "stage: grpo\nmetric_for_best_model: completions/mean_length\ngreater_is_better: false\n");
  EXPECT_EQ(chosen.config.eval.greater_is_better, GreaterIsBetter::kNo) << "somebody means it";
}

TEST_F(OnlineSettingsTest, KeysOfOtherStagesAreSaidToDoNothing) {
  EXPECT_PRED2(contains, notes_of(load_yaml("stage: sft\ntemperature: 0.5")),
               "'temperature' has no effect: stage is sft");
  EXPECT_PRED2(contains, notes_of(load_yaml("stage: dpo\nnum_generations: 4")),
               "'num_generations' has no effect: stage is dpo");
  const auto grpo = notes_of(
      load_yaml("stage: grpo\npacking: true\nlam: 0.5\nref_model: m\nkl_in: reward\npref_ftx: 1\n"
                "label_smoothing_factor: 0.1\nreward_timeout: 4\nrollout_correction_cap: 2\n"));
  for (const char* part :
       {"'packing' has no effect: stage is grpo, which trains on answers that it writes",
        "'lam' has no effect: advantage_estimator is group", "'ref_model' has no effect: kl_coef",
        "'kl_in' has no effect", "'pref_ftx' has no effect: stage is grpo",
        "'label_smoothing_factor' has no effect", "'reward_timeout' has no effect",
        "'rollout_correction_cap' has no effect"}) {
    EXPECT_PRED2(contains, grpo, part);
  }
  EXPECT_EQ(notes_of(load_yaml("stage: grpo\nref_model: m\nbeta: 0.1\n")), "");
  EXPECT_PRED2(contains, notes_of(load_yaml("stage: ppo\nscale_rewards: none\n")),
               "'scale_rewards' has no effect: advantage_estimator is gae");
}

}  // namespace
}  // namespace skein::config
