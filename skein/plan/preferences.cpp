// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/preferences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/checkpoint/files/weights_digest.h"
#include "skein/config/online_values.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/plan/finetune.h"
#include "skein/plan/model_folder.h"
#include "skein/plan/online.h"
#include "skein/plan/run_model.h"

namespace skein::plan {
namespace {

using config::PreferenceLoss;
using config::TrainingStage;
using enum config::PreferenceLoss;

constexpr LossFacts kPlain{.needs_reference = true}, kFree{.needs_reference = false},
    kDivergent{.needs_reference = true, .takes_divergence = true};

constexpr std::array<std::pair<PreferenceLoss, LossFacts>, 16> kFacts{{{kSigmoid, kDivergent},
                                                                       {kHinge, kDivergent},
                                                                       {kIpo, kDivergent},
                                                                       {kRobust, kDivergent},
                                                                       {kExoPair, kDivergent},
                                                                       {kNcaPair, kPlain},
                                                                       {kSppoHard, kPlain},
                                                                       {kApoZero, kPlain},
                                                                       {kApoDown, kPlain},
                                                                       {kDiscopop, kDivergent},
                                                                       {kSigmoidNorm, kDivergent},
                                                                       {kSimpo, kFree},
                                                                       {kOrpo, kFree},
                                                                       {kSft, kFree},
                                                                       {kKto, kPlain},
                                                                       {kApoZeroUnpaired, kPlain}}};

bool is_of_kto(PreferenceLoss loss) { return loss == kKto || loss == kApoZeroUnpaired; }

bool compares(TrainingStage stage) {
  return stage == TrainingStage::kDpo || stage == TrainingStage::kKto;
}

bool asks_to_share(const config::RunConfig& config) {
  const bool has_some = row_kind(config.stage) == data::RowKind::kPairs ||
                        (config::is_online(config.stage) && config::generations_of(config) > 1);
  return config.preference.share_prompts && has_some;
}

// The models beside the policy that are asked about the same documents, with their names, where
// they may be of another architecture.
std::vector<std::pair<std::string, HfConfig>> others_that_look(const config::RunConfig& config) {
  std::vector<std::pair<std::string, HfConfig>> others;
  const auto& reference = config.preference.ref_model;
  if (reference_of(config) == Reference::kCopy && !reference.empty()) {
    others.emplace_back("ref_model " + reference,
                        read_hf_config(open_model_folder({reference, {}, {}}).weights));
  }
  if (config::has_critic(config)) {
    const auto critic = critic_config(config);
    others.emplace_back("the critic, " + critic.model.model_name_or_path, read_run_model(critic));
  }
  return others;
}

// What a document may have. Without max_prompt_length nobody knows: as much as the model.
int64_t longest_document(const config::RunConfig& config, const HfConfig& model) {
  const bool is_open = config::is_online(config.stage) && config.rollout.max_prompt_length == 0;
  return is_open ? model.dimensions().usable_positions() : config.data.block_size;
}

std::string origin(const config::Resolved& resolved, const char* key) {
  return resolved.origin_of(key).place();
}

void check_losses_of_stage(const config::Resolved& resolved) {
  const auto& config = resolved.config;
  const bool is_kto = config.stage == TrainingStage::kKto;
  for (const auto loss : config.preference.pref_loss) {
    if (is_of_kto(loss) == is_kto) continue;
    config::refuse(
        resolved.origin_of("pref_loss"),
        fmt::format("'pref_loss: {}' is for stage: {}, and stage is {}", config::to_text(loss),
                    is_kto ? "dpo" : "kto", config::to_text(config.stage)));
  }
  const auto losses = losses_of(config);
  if (is_kto && losses.size() > 1) {
    config::refuse(resolved.origin_of("pref_loss"),
                   "'pref_loss' of stage: kto is one loss: kto or apo_zero_unpaired");
  }
  const auto& weights = config.preference.loss_weights;
  if (!weights.empty() && weights.size() != losses.size()) {
    config::refuse(
        resolved.origin_of("loss_weights"),
        fmt::format("'loss_weights' has {} numbers for {} of pref_loss ({}): give one "
                    "for each",
                    weights.size(), losses.size(), fmt::join(config::words_of(losses), ", ")));
  }
}

void check_smoothing(const config::Resolved& resolved) {
  const auto losses = losses_of(resolved.config);
  const auto has = [&](PreferenceLoss loss) { return std::ranges::count(losses, loss) > 0; };
  const double smoothing = resolved.config.finetune.label_smoothing_factor;
  if (has(kExoPair) && smoothing == 0) {
    config::refuse(resolved.origin_of("pref_loss"),
                   "'pref_loss: exo_pair' takes the logarithm of label_smoothing, which is 0: give "
                   "label_smoothing=0.001");
  }
  if (has(kRobust) && smoothing >= 0.5) {
    config::refuse(resolved.origin_of("label_smoothing_factor"),
                   fmt::format("'label_smoothing_factor' is {}, and pref_loss: robust divides by 1 "
                               "- 2 label_smoothing: give less than 0.5",
                               smoothing));
  }
}

void check_divergence(const config::Resolved& resolved) {
  const auto& keys = resolved.config.preference;
  if (keys.f_divergence_type == config::Divergence::kReverseKl) return;
  for (const auto loss : losses_of(resolved.config)) {
    if (facts_of(loss).takes_divergence || !facts_of(loss).needs_reference) continue;
    config::refuse(resolved.origin_of("f_divergence_type"),
                   fmt::format("'f_divergence_type: {}' does not go with pref_loss: {}, which is "
                               "made of reverse_kl: leave one of the two out",
                               config::to_text(keys.f_divergence_type), config::to_text(loss)));
  }
}

// Names and shapes, in order.
bool are_alike(const Shapes& one, const Shapes& other) {
  return std::ranges::equal(one.parameters, other.parameters, [](const auto& a, const auto& b) {
    return a.name == b.name && a.shape == b.shape;
  });
}

// Of weights, and of what says how they are computed with.
std::string digest_of(const ModelFolder& folder, const std::string& config) {
  auto text = checkpoint::weights_digest(checkpoint::open_model_files(folder.weights)) + config;
  if (!folder.adapter.empty()) {
    text += checkpoint::weights_digest(
        checkpoint::open_model_files(folder.adapter, checkpoint::kAdapterStem));
    text += read_file(folder.adapter / adapter::kConfigName);
  }
  return digest(text);
}

}  // namespace

data::RowKind row_kind(TrainingStage stage) {
  switch (stage) {
    case TrainingStage::kReward:
    case TrainingStage::kDpo:
      return data::RowKind::kPairs;
    case TrainingStage::kKto:
      return data::RowKind::kFeedback;
    case TrainingStage::kPpo:
    case TrainingStage::kGrpo:
    case TrainingStage::kRloo:
      return data::RowKind::kPrompts;
    case TrainingStage::kPretrain:
    case TrainingStage::kSft:
      break;
  }
  return data::RowKind::kRows;
}

std::vector<PreferenceLoss> losses_of(const config::RunConfig& config) {
  if (!compares(config.stage)) return {};
  const auto& asked = config.preference.pref_loss;
  if (!asked.empty()) return asked;
  return {config.stage == TrainingStage::kKto ? kKto : kSigmoid};
}

std::vector<double> loss_weights_of(const config::RunConfig& config) {
  const auto& asked = config.preference.loss_weights;
  return asked.empty() ? std::vector<double>(losses_of(config).size(), 1) : asked;
}

LossFacts facts_of(PreferenceLoss loss) {
  for (const auto& [known, facts] : kFacts) {
    if (known == loss) return facts;
  }
  throw InternalError("a loss of which nothing is known");
}

namespace {

bool asks_reference(const config::RunConfig& config) {
  if (config::is_online(config.stage)) return config::kl_coef_of(config) > 0;
  return std::ranges::any_of(losses_of(config),
                             [](PreferenceLoss loss) { return facts_of(loss).needs_reference; });
}

}  // namespace

Reference reference_of(const config::RunConfig& config) {
  if (!asks_reference(config)) return Reference::kNone;
  if (!config.preference.ref_model.empty()) return Reference::kCopy;
  // Modules that train whole are the model's own: without adapters they are not what they were.
  const auto lora = tuning_of(config).lora;
  return lora && lora->modules_to_save.empty() ? Reference::kWithoutAdapters : Reference::kCopy;
}

ReferenceIdentity reference_identity(const config::RunConfig& config, const HfConfig& model) {
  if (reference_of(config) != Reference::kCopy) return {};
  const auto& given = config.preference.ref_model;
  const auto& folder = given.empty() ? config.model.model_name_or_path : given;
  if (given.empty() && config.model.train_from_scratch) {
    return {.folder = folder, .digest = fmt::format("first weights of seed {}", config.seed)};
  }
  if (given.empty()) {
    return {.folder = folder,
            .digest = digest_of({.weights = folder, .adapter = {}}, model.source)};
  }
  const auto opened = open_model_folder({given, {}, {}});
  return {.folder = folder, .digest = digest_of(opened, read_hf_config(opened.weights).source)};
}

std::string sharing_refusal(const config::RunConfig& config, const HfConfig& model,
                            int64_t longest) {
  const auto lora = tuning_of(config).lora;
  if (lora && lora->dropout > 0) {
    return fmt::format("lora_dropout is {}, and a prompt would draw once for all of its answers",
                       lora->dropout);
  }
  if (config.finetune.neftune_noise_alpha > 0) {
    return fmt::format(
        "neftune_noise_alpha is {}, and a prompt would draw once for all of its answers",
        config.finetune.neftune_noise_alpha);
  }
  auto why = model.architecture->sharing_refusal(longest);
  if (!why.empty()) return why;
  for (const auto& [name, other] : others_that_look(config)) {
    why = other.architecture->sharing_refusal(longest);
    if (!why.empty()) return fmt::format("{}: {}", name, why);
  }
  return "";
}

bool shares_prompts(const config::RunConfig& config, const HfConfig& model) {
  return asks_to_share(config) &&
         sharing_refusal(config, model, longest_document(config, model)).empty();
}

std::string sharing_note(const config::RunConfig& config, const HfConfig& model) {
  if (!asks_to_share(config)) return "";
  const auto why = sharing_refusal(config, model, longest_document(config, model));
  if (why.empty()) return "";
  return fmt::format("share_prompts is off, and prompts are computed for each answer: {}", why);
}

std::string objective_of(const config::RunConfig& config) {
  auto text = config::to_text(config.stage);
  const double smoothing = config.finetune.label_smoothing_factor;
  if (smoothing != 0) text += fmt::format(" label_smoothing_factor={}", smoothing);
  const auto& keys = config.preference;
  if (config.stage == TrainingStage::kReward && keys.center_rewards_coefficient != 0) {
    text += fmt::format(" center_rewards_coefficient={}", keys.center_rewards_coefficient);
  }
  if (!compares(config.stage)) return text;
  text += fmt::format(" {} beta={}", fmt::join(config::words_of(losses_of(config)), "+"),
                      keys.pref_beta);
  const config::PreferenceConfig plain;
  const auto add = [&](const char* name, double value, double otherwise) {
    if (value != otherwise) text += fmt::format(" {}={}", name, value);
  };
  if (!keys.loss_weights.empty()) {
    text += fmt::format(" weights={}", fmt::join(keys.loss_weights, "+"));
  }
  add("ftx", keys.pref_ftx, plain.pref_ftx);
  add("rpo_alpha", keys.rpo_alpha, plain.rpo_alpha);
  add("ld_alpha", keys.ld_alpha, plain.ld_alpha);
  add("simpo_gamma", keys.simpo_gamma, plain.simpo_gamma);
  add("discopop_tau", keys.discopop_tau, plain.discopop_tau);
  add("kto_chosen_weight", keys.kto_chosen_weight, plain.kto_chosen_weight);
  add("kto_rejected_weight", keys.kto_rejected_weight, plain.kto_rejected_weight);
  if (keys.f_divergence_type != plain.f_divergence_type) {
    text += fmt::format(" {} {}", config::to_text(keys.f_divergence_type),
                        keys.f_alpha_divergence_coef);
  }
  return text;
}

void check_preference_keys(const config::Resolved& resolved) {
  if (!compares(resolved.config.stage)) return;
  check_losses_of_stage(resolved);
  if (resolved.config.stage != TrainingStage::kDpo) return;
  check_smoothing(resolved);
  check_divergence(resolved);
}

void check_reference(const config::Resolved& resolved, const HfConfig& model) {
  const auto& config = resolved.config;
  const auto& given = config.preference.ref_model;
  if (reference_of(config) != Reference::kCopy || given.empty()) return;
  const auto folder = open_model_folder({given, {}, {}});
  const auto reference = read_hf_config(folder.weights);
  const auto place = origin(resolved, "ref_model");
  check_not_quantised(reference.source, (folder.weights / "config.json").string());
  const bool has_score_beside =
      !folder.adapter.empty() &&
      adapter::read_adapter_config(folder.adapter).task_type == adapter::kScores;
  if (reference.dimensions().scores || has_score_beside) {
    throw UserError(fmt::format(
        "{}: ref_model {} is a reward model: a reference gives probabilities, as the model before "
        "its training does",
        place, given));
  }
  const auto own = model.dimensions().vocabulary, its = reference.dimensions().vocabulary;
  if (own != its) {
    throw UserError(
        fmt::format("{}: ref_model {} has a vocabulary of {}, and the model one of {}: their "
                    "probabilities cannot be compared. Give the model that this one was made from",
                    place, given, its, own));
  }
  if (!are_alike(reference.shapes(), model.shapes())) {
    throw UserError(
        fmt::format("{}: ref_model {} is another model ({}, {} layers of {}) than "
                    "model_name_or_path ({}, {} layers of {}): give the model before its training",
                    place, given, reference.family, reference.dimensions().layers,
                    reference.dimensions().channels, model.family, model.dimensions().layers,
                    model.dimensions().channels));
  }
}

std::vector<std::string> preference_warnings(const config::Resolved& resolved) {
  const auto& config = resolved.config;
  std::vector<std::string> warnings;
  const bool online = config::is_online(config.stage);
  if (!compares(config.stage) && !online) return warnings;
  const auto reference = reference_of(config);
  if (reference == Reference::kNone && !online) {
    for (const auto* key : {"ref_model", "precompute_ref_log_probs"}) {
      if (!resolved.origins.contains(key)) continue;
      warnings.push_back(fmt::format("{} has no effect: {} needs no reference", key,
                                     fmt::join(config::words_of(losses_of(config)), ", ")));
    }
  }
  if (reference == Reference::kWithoutAdapters && !config.finetune.adapter_name_or_path.empty()) {
    warnings.push_back(
        fmt::format("the reference is {} without {}: {} at 0. `skein merge` the adapter and "
                    "give its folder as ref_model to compare with what the run begins with",
                    config.model.model_name_or_path, config.finetune.adapter_name_or_path,
                    online ? "the distance from it does not begin" : "rewards do not begin"));
  }
  return warnings;
}

}  // namespace skein::plan
