// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Private to this folder: the part of the list in fields.h that stages ppo, grpo and rloo have.

#include "skein/config/online_config.h"
#include "skein/config/syntax/about.h"

namespace skein::config {

void sampling_fields(RolloutConfig& config, auto&& field) {
  field("temperature", config.temperature,
        About{.help = "above 1: answers are more various; probabilities are those at this "
                      "temperature everywhere",
              .aliases = {"actor_rollout_ref.rollout.temperature"},
              .min = 0,
              .min_is_allowed = false});
  field("top_k", config.top_k,
        About{.help = "only the k likeliest tokens; 0 or -1: all",
              .aliases = {"actor_rollout_ref.rollout.top_k"},
              .min = -1});
  field("top_p", config.top_p,
        About{.help = "only the likeliest tokens that together have this probability",
              .aliases = {"actor_rollout_ref.rollout.top_p"},
              .min = 0,
              .max = 1,
              .min_is_allowed = false});
  field("min_p", config.min_p,
        About{.help = "only tokens at least so many times as likely as the likeliest",
              .min = 0,
              .max = 1});
  field("repetition_penalty", config.repetition_penalty,
        About{.help = "above 1: what an answer holds already becomes less likely",
              .min = 0,
              .min_is_allowed = false});
  field("stop", config.stop,
        About{.help = "texts that end an answer, beside the end tokens",
              .aliases = {"stop_strings", "stop_sequences"},
              .is_verbatim = true});
}

void fields(RolloutConfig& config, auto&& field) {
  field("num_generations", config.num_generations,
        About{.help = "answers to each prompt; absent: grpo 8, rloo 4, ppo 1",
              .aliases = {"n_samples_per_prompt", "rloo_k", "actor_rollout_ref.rollout.n"},
              .min = 1,
              .max = 65536});
  field("max_prompt_length", config.max_prompt_length,
        About{.help = "tokens of a prompt at most; 0: any number",
              .aliases = {"prompt_max_len", "data.max_prompt_length"},
              .min = 0});
  field("long_prompts", config.long_prompts,
        About{.help = "prompts longer than that: drop, truncate_left (keeps their end), error",
              .aliases = {"data.truncation"}});
  field("max_completion_length", config.max_completion_length,
        About{.help = "tokens of an answer at most",
              .aliases = {"response_length", "max_new_tokens", "generate_max_len",
                          "data.max_response_length"},
              .min = 1});
  sampling_fields(config, field);
  field("rollout_cache_size", config.rollout_cache_size,
        About{.help = "bytes of keys and values while answers are written, as 8GiB; 0: automatic, "
                      "what is left",
              .min = 0});
  field(
      "rollout_max_rows", config.rollout_max_rows,
      About{.help = "answers that a rank writes at once; 0: as many as the cache holds", .min = 0});
  field(
      "ds3_gather_for_generation", config.ds3_gather_for_generation,
      About{.help = "zero3: all weights whole on every rank while answers are written, where they "
                    "fit; false: unit after unit, for every token"});
  field(
      "rollout_correction", config.rollout_correction,
      About{.help = "tokens that were drawn more or less likely than training finds them: none, "
                    "truncate (weight at most the cap), mask (beyond the cap they do not count)"});
  field("rollout_correction_cap", config.rollout_correction_cap,
        About{.help = "the cap of that ratio", .min = 1});
}

void fields(RewardConfig& config, auto&& field) {
  field("reward_funcs", config.reward_funcs,
        About{.help = "functions that score answers: docs/rewards.md lists them",
              .aliases = {"reward_functions"},
              .is_verbatim = true});
  field("reward_weights", config.reward_weights,
        About{.help = "what each of reward_funcs, then reward_model, then reward_program counts; "
                      "empty: 1"});
  field("reward_model", config.reward_model,
        About{.help = "folder of a model of stage: rm whose score is a reward",
              .aliases = {"reward_model_path", "reward_pretrain"},
              .is_path = true});
  field("reward_retokenize", config.reward_retokenize,
        About{.help = "a reward_model with another tokenizer reads the texts anew"});
  field("reward_program", config.reward_program,
        About{.help = "a program that scores answers, and its arguments: it reads and writes "
                      "lines of JSON; from the run's own file or the command line alone",
              .is_command = true});
  field("reward_timeout", config.reward_timeout,
        About{.help = "seconds that reward_program has for the answers it was given",
              .min = 1,
              .max = 1e9});
  field("max_turns", config.max_turns,
        About{.help = "times that reward_program is asked about an answer; before the last it may "
                      "reply with messages, behind which the model goes on",
              .min = 1,
              .max = 1000});
  field("skip_unscored", config.skip_unscored,
        About{.help = "answers that no reward has an opinion on, or that reward_program fails "
                      "with, are not trained on; else they end the run"});
}

void mini_batch_fields(PolicyConfig& config, auto&& field) {
  field("num_iterations", config.num_iterations,
        About{.help = "times that a step's answers are trained on; absent: ppo 4, grpo and rloo 1",
              .aliases = {"num_ppo_epochs", "ppo_epochs", "actor_rollout_ref.actor.ppo_epochs"},
              .min = 1,
              .max = 1e6});
  field("num_mini_batches", config.num_mini_batches,
        About{.help = "updates that a step's answers are cut into; absent: as the next two say, "
                      "or 1",
              .aliases = {"ppo_buffer_size"},
              .min = 1,
              .max = 1e6});
  field("steps_per_generation", config.steps_per_generation,
        About{.help = "the same in micro-batches: a multiple of gradient_accumulation_steps",
              .min = 1,
              .max = 1e9});
  field(
      "generation_batch_size", config.generation_batch_size,
      About{.help = "the same in answers: a multiple of the global batch", .min = 1, .max = 1e12});
}

void loss_fields(PolicyConfig& config, auto&& field) {
  field("policy_loss", config.policy_loss,
        About{.help = "how tokens are summed: grpo, bnpo, dr_grpo, dapo, cispo, ppo, "
                      "seq_mean_token_sum; auto: dapo, of stage: ppo ppo, of rloo "
                      "seq_mean_token_sum; also loss_type"});
  field("importance_sampling_level", config.importance_sampling_level,
        About{.help = "ratios to the older policy: token, sequence"});
  field("epsilon", config.epsilon,
        About{.help = "ratios count between 1 - epsilon and 1 + epsilon",
              .aliases = {"cliprange", "clip_range", "eps_clip", "clip_ratio",
                          "actor_rollout_ref.actor.clip_ratio"},
              .min = 0});
  field("epsilon_high", config.epsilon_high,
        About{.help = "the upper of the two; absent: epsilon",
              .aliases = {"clip_ratio_high", "actor_rollout_ref.actor.clip_ratio_high"},
              .min = 0});
  field("delta", config.delta,
        About{.help = "no ratio counts more than this, clipped or not; absent: no bound",
              .min = 1,
              .min_is_allowed = false});
  field("clip_ratio_c", config.clip_ratio_c,
        About{.help = "of answers that were bad no ratio counts more than this (dual clip); "
                      "absent: no bound",
              .aliases = {"dual_clip", "actor_rollout_ref.actor.clip_ratio_c"},
              .min = 1,
              .min_is_allowed = false});
  field("mask_truncated_completions", config.mask_truncated_completions,
        About{.help = "answers that reached max_completion_length are not trained on"});
}

void kl_fields(PolicyConfig& config, auto&& field) {
  field("kl_coef", config.kl_coef,
        About{.help = "how dear it is to leave the reference; 0: there is none; absent: grpo 0, "
                      "ppo and rloo 0.05; also beta",
              .aliases = {"init_kl_coef", "kl_loss_coef"},
              .min = 0});
  field("kl_in", config.kl_in,
        About{.help = "that price lowers the reward or is beside the loss: reward, loss; auto: "
                      "grpo loss, ppo and rloo reward"});
  field("kl_estimator", config.kl_estimator,
        About{.help = "the distance from the log-ratio r of a token: k1 (r), k2 (r²/2), k3 "
                      "(exp(-r) - 1 + r); auto: in the loss k3, in the reward k1",
              .aliases = {"kl_loss_type", "kl_penalty"}});
  field("kl_target", config.kl_target,
        About{.help = "kl_coef moves so that the distance becomes this; absent: it stays",
              .aliases = {"ppo_target"},
              .min = 0,
              .min_is_allowed = false});
  field("kl_horizon", config.kl_horizon,
        About{.help = "answers in which it moves", .aliases = {"horizon"}, .min = 1});
}

void fields(PolicyConfig& config, auto&& field) {
  mini_batch_fields(config, field);
  field("advantage_estimator", config.advantage_estimator,
        About{.help = "what a reward is compared with: group, rloo, reinforce_plus_plus, "
                      "reinforce_plus_plus_baseline, gae; auto: grpo group, rloo rloo, ppo gae",
              .aliases = {"adv_estimator"}});
  field("scale_rewards", config.scale_rewards,
        About{.help = "group: what advantages are divided by, the spread of: group, batch, none"});
  field("filter_groups", config.filter_groups,
        About{.help = "groups whose rewards are all equal are left out of what divides the loss"});
  loss_fields(config, field);
  kl_fields(config, field);
}

void critic_fields(PpoConfig& config, auto&& field) {
  field("cliprange_value", config.cliprange_value,
        About{.help = "how far an update moves the critic's values",
              .aliases = {"value_clip", "critic.cliprange_value"},
              .min = 0});
  field("vf_coef", config.vf_coef, About{.help = "what the critic's loss counts", .min = 0});
  field("critic_model", config.critic_model,
        About{.help = "folder that the critic begins from; empty: reward_model, else the model "
                      "with a new head",
              .aliases = {"critic_pretrain", "value_model"},
              .is_path = true});
  field("critic_learning_rate", config.critic_learning_rate,
        About{.help = "peak learning rate of the critic; absent: learning_rate",
              .aliases = {"critic_lr", "critic.optim.lr"},
              .min = 0});
  field("critic_warmup", config.critic_warmup,
        About{.help = "steps in which the critic alone learns",
              .aliases = {"freezing_actor_steps", "trainer.critic_warmup"},
              .min = 0});
}

void fields(PpoConfig& config, auto&& field) {
  field("gamma", config.gamma,
        About{.help = "what the next token's worth counts", .min = 0, .max = 1});
  field("lam", config.lam,
        About{.help = "gae: how far rewards are believed rather than the critic",
              .aliases = {"lambd", "gae_lambda"},
              .min = 0,
              .max = 1});
  critic_fields(config, field);
  field("whiten_rewards", config.whiten_rewards,
        About{.help = "rewards of tokens are divided by their spread",
              .aliases = {"ppo_whiten_rewards"}});
  field("whiten_advantages", config.whiten_advantages,
        About{.help = "advantages of tokens get mean 0 and spread 1"});
  field("ppo_score_norm", config.ppo_score_norm,
        About{.help = "scores are brought to mean 0 and spread 1 of all scores so far",
              .aliases = {"use_score_norm"}});
  field("reward_clip", config.reward_clip,
        About{.help = "scores are kept between minus this and this; 0: are not", .min = 0});
  field("missing_eos_penalty", config.missing_eos_penalty,
        About{.help = "taken from the score of an answer without an end", .min = 0});
}

}  // namespace skein::config
