// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/online.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/config/online_values.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/data/rows/open_encoder.h"
#include "skein/plan/cost/cache_page.h"
#include "skein/plan/finetune.h"
#include "skein/plan/run_data.h"
#include "skein/plan/run_model.h"
#include "skein/rewards/reward.h"
#include "skein/rollout/sampling/generation_config.h"
#include "skein/text/tokenizer.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

using config::AdvantageEstimator;

std::string stage_of(const config::Resolved& resolved) {
  return config::to_text(resolved.config.stage);
}

void check_rewards(const config::Resolved& resolved) {
  const auto& reward = resolved.config.reward;
  for (const auto& spec : reward.reward_funcs) rewards::make_reward(spec);  // throws
  std::vector<std::string> sources = reward.reward_funcs;
  if (!reward.reward_model.empty()) sources.emplace_back("reward_model");
  if (!reward.reward_program.empty()) sources.emplace_back("reward_program");
  if (sources.empty()) {
    throw UserError(fmt::format(
        "stage: {} has no reward: give reward_funcs=NAME (docs/rewards.md lists them), "
        "reward_model=FOLDER of a model that stage: rm made, or reward_program='COMMAND'",
        stage_of(resolved)));
  }
  const auto& weights = reward.reward_weights;
  if (weights.empty() || weights.size() == sources.size()) return;
  config::refuse(resolved.origin_of("reward_weights"),
                 fmt::format("'reward_weights' has {} numbers for {} rewards ({}): give one for "
                             "each",
                             weights.size(), sources.size(), fmt::join(sources, ", ")));
}

void check_groups(const config::RunConfig& config) {
  const auto estimator = config::advantage_estimator_of(config);
  if (!config::compares_groups(estimator) || config::generations_of(config) > 1) return;
  throw UserError(fmt::format(
      "num_generations is 1, but advantage_estimator: {} compares the answers to one prompt with "
      "each other: give num_generations=2 or more, or stage: ppo, whose critic needs one alone",
      config::to_text(estimator)));
}

void check_kl(const config::Resolved& resolved) {
  const auto& config = resolved.config;
  const bool in_loss = config::kl_place_of(config) == config::KlPlace::kLoss;
  if (!config.policy.kl_target || config::kl_coef_of(config) == 0 || !in_loss) return;
  config::refuse(resolved.origin_of("kl_target"),
                 "'kl_target' moves the price that lowers rewards, and kl_in is loss: give "
                 "kl_in=reward, or leave kl_target out");
}

// Ratios compare what the policy says now with what it said: noise would be taken for a change.
void check_noise(const config::Resolved& resolved) {
  if (resolved.config.finetune.neftune_noise_alpha == 0) return;
  config::refuse(resolved.origin_of("neftune_noise_alpha"),
                 fmt::format("'neftune_noise_alpha' does not go with stage: {}, which compares "
                             "probabilities: leave it out",
                             stage_of(resolved)));
}

// It would be found before the first letter.
void check_stop(const config::Resolved& resolved) {
  if (!std::ranges::any_of(resolved.config.rollout.stop, &std::string::empty)) return;
  config::refuse(resolved.origin_of("stop"),
                 "'stop' has an empty text, which ends no answer: leave it out");
}

// Messages are printed by a chat template.
void check_turns(const config::Resolved& resolved) {
  const auto& reward = resolved.config.reward;
  if (reward.max_turns == 1 || reward.reward_program.empty()) return;
  if (!reward.reward_model.empty() && reward.reward_retokenize) {
    config::refuse(resolved.origin_of("max_turns"),
                   "'max_turns' above 1 does not go with reward_retokenize: a reward model reads "
                   "conversations of several turns in the model's own tokens alone");
  }
  if (open_tokens(resolved.config).chat_template) return;
  config::refuse(resolved.origin_of("max_turns"),
                 "'max_turns' above 1 lets reward_program reply with messages, which only a chat "
                 "template can print: give template or chat_template");
}

std::string place_of(const config::Resolved& resolved, const char* key) {
  return resolved.origin_of(key).place();
}

// Does `folder` know each of the policy's ids by the same name? What differs first; empty: yes.
std::string other_token(const config::RunConfig& config, const fs::path& folder) {
  const auto own =
      text::shared_tokenizer(data::tokenizer_path(config.model), config.model.new_special_tokens);
  const auto its = std::make_unique<const text::Tokenizer>(text::Tokenizer::load(folder, {}));
  const auto shown = [](const std::optional<std::string>& token) {
    return token ? config::to_text(*token) : std::string("none");
  };
  const auto count = std::max(own->vocab_size(), its->vocab_size());
  for (int64_t id = 0; id < count; ++id) {
    const auto mine = own->token_of(static_cast<uint32_t>(id));
    const auto other = its->token_of(static_cast<uint32_t>(id));
    // Ids without a name are never written.
    if (mine == other || !mine) continue;
    return fmt::format("id {} is {} there and {} here", id, shown(other), shown(mine));
  }
  return "";
}

void check_same_tokens(const config::Resolved& resolved, const ModelFolder& folder,
                       const char* key) {
  const auto& config = resolved.config;
  auto tokens = folder.tokenizer_folder();
  // A checkpoint's critic reads the tokens of the model that it lies in.
  if (!text::has_tokenizer(tokens) && tokens.filename() == "critic") tokens = tokens.parent_path();
  const bool is_reward = std::string_view(key) == "reward_model";
  const auto* cure = is_reward ? "; reward_retokenize=true reads the texts anew" : "";
  if (!text::has_tokenizer(tokens)) {
    throw UserError(fmt::format(
        "{}: {} {} has no tokenizer, so that nobody knows what tokens it reads: copy the files of "
        "its tokenizer there",
        place_of(resolved, key), key, folder.weights.string()));
  }
  const auto difference = other_token(config, tokens);
  if (difference.empty()) return;
  throw UserError(fmt::format("{}: {} {} reads other tokens than the model writes: {}{}",
                              place_of(resolved, key), key, folder.weights.string(), difference,
                              cure));
}

bool scores(const ModelFolder& folder, const HfConfig& model) {
  if (model.dimensions().scores) return true;
  return !folder.adapter.empty() &&
         adapter::read_adapter_config(folder.adapter).task_type == adapter::kScores;
}

// Of a model that reads prompts with their answers, and with so many tokens behind.
void check_positions(const config::RunConfig& config, const HfConfig& model, const std::string& who,
                     size_t behind = 0) {
  const auto dimensions = model.dimensions();
  const auto& rollout = config.rollout;
  const auto longest = rollout.max_prompt_length + rollout.max_completion_length;
  const auto known = dimensions.positions - static_cast<int64_t>(behind);
  if (!dimensions.positions_are_learned || longest <= known) return;
  throw UserError(fmt::format(
      "max_prompt_length + max_completion_length is {} + {} = {}, but {} knows {} positions{}: "
      "lower one of them",
      rollout.max_prompt_length, rollout.max_completion_length, longest, who, dimensions.positions,
      behind > 0 ? fmt::format(", of which {} are for what the template prints behind", behind)
                 : ""));
}

void check_reward_model(const config::Resolved& resolved, const HfConfig& policy) {
  const auto& config = resolved.config;
  if (!has_reward_model(config)) return;
  const auto folder = reward_folder(config);
  const auto model = read_hf_config(folder.weights);
  const auto place = place_of(resolved, "reward_model");
  check_not_quantised(model.source, (folder.weights / "config.json").string());
  if (!scores(folder, model)) {
    std::error_code ignored;
    const bool is_policy = fs::equivalent(folder.weights, config.model.model_name_or_path, ignored);
    throw UserError(fmt::format(
        "{}: reward_model {} is no reward model but one that writes text{}: give the folder that a "
        "run of stage: rm wrote",
        place, config.reward.reward_model, is_policy ? ", and the very model that trains" : ""));
  }
  check_positions(config, model, "reward_model", open_tokens(config).turn_end.behind.size());
  if (config.reward.reward_retokenize) return;
  check_same_tokens(resolved, folder, "reward_model");
  const auto own = policy.dimensions().vocabulary, its = model.dimensions().vocabulary;
  if (its >= own) return;
  const auto written = data::tokenizer_path(config.model);
  const auto size = text::shared_tokenizer(written, config.model.new_special_tokens)->vocab_size();
  if (its >= size) return;  // the policy's other rows are padding
  throw UserError(
      fmt::format("{}: reward_model {} has a vocabulary of {}, and the tokenizer one "
                  "of {}: it cannot read all that the model writes",
                  place, config.reward.reward_model, its, size));
}

void check_critic(const config::Resolved& resolved) {
  const auto& config = resolved.config;
  if (!config::has_critic(config)) return;
  const auto& given = config.ppo.critic_model;
  if (!given.empty() && names_adapter(given)) {
    throw UserError(
        fmt::format("{}: critic_model {} is an adapter: `skein merge` it, and give the folder",
                    place_of(resolved, "critic_model"), given));
  }
  std::error_code ignored;
  if (!given.empty() && fs::exists(fs::path(given) / "critic/config.json", ignored)) {
    throw UserError(fmt::format(
        "{}: critic_model {} is a model that was trained beside a critic, and not that: give {}",
        place_of(resolved, "critic_model"), given, (fs::path(given) / "critic").string()));
  }
  const auto critic = critic_config(config);
  const auto model = read_run_model(critic);
  check_positions(config, model, "the critic");
  tuned_model(critic, model);
  if (!given.empty()) check_same_tokens(resolved, open_weights(given), "critic_model");
}

// Without an end every answer would have max_completion_length tokens.
void check_end(const config::RunConfig& config) {
  if (!config.rollout.stop.empty()) return;
  const fs::path folder = config.model.model_name_or_path;
  if (!rollout::read_generation_config(std::span(&folder, 1)).eos_token_ids.empty()) return;
  if (!open_tokens(config).audit.ends_of_turn.empty()) return;
  throw UserError(fmt::format(
      "nothing ends an answer of {}: its tokenizer_config.json names no eos_token, and config.json "
      "and generation_config.json no eos_token_id; name one there, or give stop='TEXT'",
      folder.string()));
}

}  // namespace

bool has_reward_model(const config::RunConfig& config) {
  return config::is_online(config.stage) && !config.reward.reward_model.empty();
}

ModelFolder reward_folder(const config::RunConfig& config) {
  return open_model_folder({config.reward.reward_model, {}, {}});
}

HfConfig read_reward_model(const config::RunConfig& config) {
  return with_score(read_hf_config(reward_folder(config).weights));
}

config::RunConfig critic_config(const config::RunConfig& config) {
  const auto& given = config.ppo.critic_model;
  const auto& reward = config.reward;
  auto critic = config;
  critic.stage = config::TrainingStage::kReward;
  critic.optimizer.learning_rate = config::critic_learning_rate_of(config);
  critic.finetune.adapter_name_or_path.clear();
  const bool from_reward = !reward.reward_model.empty() && !reward.reward_retokenize &&
                           !names_adapter(reward.reward_model);
  const auto folder = !given.empty() ? given : from_reward ? reward.reward_model : "";
  if (folder.empty()) return critic;
  critic.model.model_name_or_path = folder;
  critic.model.train_from_scratch = false;
  return critic;
}

void check_online_keys(const config::Resolved& resolved) {
  if (!config::is_online(resolved.config.stage)) return;
  check_rewards(resolved);
  check_groups(resolved.config);
  check_kl(resolved);
  check_noise(resolved);
  check_stop(resolved);
}

void check_online_models(const config::Resolved& resolved, const HfConfig& model) {
  if (!config::is_online(resolved.config.stage)) return;
  check_positions(resolved.config, model, "the model");
  check_end(resolved.config);
  check_turns(resolved);
  check_reward_model(resolved, model);
  check_critic(resolved);
}

int64_t cache_bytes(const Dimensions& model, int64_t tokens, DType dtype) {
  const auto head_dim = model.query_width / model.heads;
  const auto width = model.key_width / head_dim * cache_channels(head_dim);
  const auto stored = (cache_pages(tokens) + 1) * kCachePageTokens;  // and a page of nobody
  return 2 * model.layers * width * stored * static_cast<int64_t>(dtype_bytes(dtype));
}

void check_cache(const config::Resolved& resolved, const Dimensions& model, DType dtype) {
  const auto& rollout = resolved.config.rollout;
  if (!config::is_online(resolved.config.stage) || rollout.rollout_cache_size == 0) return;
  const auto needed =
      cache_bytes(model, rollout.max_prompt_length + rollout.max_completion_length, dtype);
  if (rollout.rollout_cache_size >= needed) return;
  config::refuse(
      resolved.origin_of("rollout_cache_size"),
      fmt::format("'rollout_cache_size' is {} bytes, but the keys and values of one answer with "
                  "its prompt ({} + {} tokens) take {}: give that much or more, or 0, which takes "
                  "what is left",
                  rollout.rollout_cache_size, rollout.max_prompt_length,
                  rollout.max_completion_length, needed));
}

void check_warmup(const config::Resolved& resolved, int64_t total_steps) {
  const auto& config = resolved.config;
  if (!config::is_online(config.stage) || !config::has_critic(config)) return;
  if (config.ppo.critic_warmup < total_steps) return;
  config::refuse(resolved.origin_of("critic_warmup"),
                 fmt::format("'critic_warmup' is {}, and the run has {} steps: the model would "
                             "never learn; give less",
                             config.ppo.critic_warmup, total_steps));
}

}  // namespace skein::plan
