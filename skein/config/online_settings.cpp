// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/online_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>

#include "skein/config/field_index.h"
#include "skein/config/online_fields.h"
#include "skein/config/online_values.h"
#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

constexpr std::string_view kAxolotlSection = "trl.";

using Idle = std::map<std::string, std::string>;

void leave(std::initializer_list<const char*> keys, const std::string& why, Idle& idle) {
  for (const auto* key : keys) idle.emplace(key, why);
}

void leave_all(auto component, const std::string& why, Idle& idle) {
  fields(component, [&](const std::string& name, auto&, const About&) { idle.emplace(name, why); });
}

// Of rows that are trained on as they are.
void add_keys_of_rows(const RunConfig& config, Idle& idle) {
  const auto why =
      fmt::format("stage is {}, which trains on answers that it writes", to_text(config.stage));
  leave({"packing", "group_by_length", "mask_history", "train_on_prompt", "label_smoothing_factor",
         "precompute_ref_log_probs"},
        why, idle);
  leave({"excess_length_strategy"},
        fmt::format("stage is {}, where long_prompts says it", to_text(config.stage)), idle);
}

void add_estimator_keys(const RunConfig& config, Idle& idle) {
  using enum AdvantageEstimator;
  const auto estimator = advantage_estimator_of(config);
  const auto is = fmt::format("advantage_estimator is {}", to_text(estimator));
  if (estimator != kGae) {
    leave({"lam", "cliprange_value", "vf_coef", "critic_model", "critic_learning_rate",
           "critic_warmup", "whiten_rewards", "whiten_advantages"},
          is, idle);
  }
  if (estimator != kGae && estimator != kReinforcePlusPlus) leave({"gamma"}, is, idle);
  if (estimator != kGroup) leave({"scale_rewards"}, is, idle);
  if (!compares_groups(estimator)) leave({"filter_groups"}, is, idle);
}

void add_kl_keys(const RunConfig& config, Idle& idle) {
  if (kl_coef_of(config) == 0) {
    leave({"kl_in", "kl_estimator", "kl_target", "kl_horizon", "ref_model"},
          "kl_coef is 0, so that nothing is compared with a reference", idle);
  }
  if (!config.policy.kl_target) leave({"kl_horizon"}, "kl_target is not given", idle);
}

void add_other_keys(const RunConfig& config, Idle& idle) {
  if (config.reward.reward_model.empty()) {
    leave({"reward_retokenize"}, "reward_model is not given", idle);
  }
  if (config.reward.reward_program.empty()) {
    leave({"reward_timeout", "max_turns"}, "reward_program is not given", idle);
  }
  if (config.rollout.max_prompt_length == 0) {
    leave({"long_prompts"}, "max_prompt_length is 0", idle);
  }
  if (config.rollout.rollout_correction == RolloutCorrection::kNone) {
    leave({"rollout_correction_cap"}, "rollout_correction is none", idle);
  }
}

}  // namespace

bool ask_for_online(const std::vector<std::vector<Setting>>& sources) {
  bool online = false;
  for (const auto& settings : sources) {
    for (const auto& [key, value, origin, layer] : settings) {
      if (key != "stage" && key != "algorithm" && key != "rl") continue;
      const auto word = lower(value.text);
      const auto known = spellings_of(TrainingStage()).known;
      online = std::ranges::any_of(
          known, [&](const auto& stage) { return word == stage.text && is_online(stage.value); });
    }
  }
  return online;
}

std::string online_spelling(std::string_view key) {
  const bool in_section = key.starts_with(kAxolotlSection);
  const auto own = in_section ? key.substr(kAxolotlSection.size()) : key;
  if (own == "beta" || own == "rl_beta") return "kl_coef";
  if (own == "loss_type") return "policy_loss";
  return std::string(in_section && is_key(std::string(own)) ? own : key);
}

void refuse_inherited_program(const std::vector<std::vector<Setting>>& files) {
  if (files.empty()) return;
  for (const auto& settings : std::span(files).first(files.size() - 1)) {
    for (const auto& setting : settings) {
      if (setting.key != "reward_program" || is_absent(setting.value)) continue;
      refuse(setting.origin,
             "'reward_program' names a program that the run starts, so that a file which another "
             "one extends must not bring it along: give it in the run's own file or on the command "
             "line");
    }
  }
}

void read_prompt_length(Layer& layer, std::vector<std::string>& notes) {
  const auto found = layer.find("block_size");
  if (found == layer.end()) return;
  auto setting = layer.extract(found).mapped();
  const auto own = layer.find("max_prompt_length");
  if (own == layer.end()) {
    notes.push_back(
        fmt::format("{}: '{}' is read as max_prompt_length: max_completion_length is "
                    "that of the answer",
                    setting.origin.place(), setting.key));
    setting.origin.spelling = setting.key;
    layer.emplace("max_prompt_length", std::move(setting));
    return;
  }
  // Saved configurations hold the sum.
  const auto answer = layer.find("max_completion_length");
  const auto prompt_tokens = parse_integer(own->second.value.text);
  const auto answer_tokens = answer == layer.end() ? RolloutConfig().max_completion_length
                                                   : parse_integer(answer->second.value.text);
  const auto tokens = parse_integer(setting.value.text);
  if (prompt_tokens && answer_tokens && tokens == *prompt_tokens + *answer_tokens) return;
  if (prompt_tokens == 0) return;
  notes.push_back(
      fmt::format("{}: '{}' has no effect: max_prompt_length and max_completion_length "
                  "say how long a prompt and its answer are",
                  setting.origin.place(), setting.key));
}

void settle_online(RunConfig& config, std::vector<std::string>& notes) {
  auto& rollout = config.rollout;
  constexpr int64_t kLeast = 2;  // that block_size takes
  config.data.block_size =
      std::max(rollout.max_prompt_length + rollout.max_completion_length, kLeast);
  rollout.top_k = std::max<int64_t>(rollout.top_k, 0);
  // Answers are evaluated by their rewards; nothing is compared with a text.
  auto& metric = config.eval.metric_for_best_model;
  if (metric != "loss") return;
  metric = "reward";
  if (config.eval.greater_is_better != GreaterIsBetter::kNo) return;
  config.eval.greater_is_better = GreaterIsBetter::kAuto;
  notes.push_back(
      fmt::format("greater_is_better: false is of a loss; evaluations of stage: {} have none, and "
                  "of their rewards the highest is the best",
                  to_text(config.stage)));
}

void add_online_keys(const RunConfig& config, Idle& idle) {
  if (!is_online(config.stage)) {
    const auto is = fmt::format("stage is {}", to_text(config.stage));
    leave_all(config.rollout, is, idle);
    leave_all(config.reward, is, idle);
    leave_all(config.policy, is, idle);
    leave_all(config.ppo, is, idle);
    return;
  }
  add_keys_of_rows(config, idle);
  add_estimator_keys(config, idle);
  add_kl_keys(config, idle);
  add_other_keys(config, idle);
}

}  // namespace skein::config
