// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/finetune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/files/tensor_match.h"
#include "skein/checkpoint/files/weights_digest.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/plan/adapter_base.h"
#include "skein/plan/model_folder.h"
#include "skein/plan/run_model.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

using adapter::AdapterConfig;
using adapter::ModuleChoice;
using config::FinetuneConfig;
using config::FinetuningType;

bool is_name(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

// Names; one pattern; or every linear layer, as LLaMA-Factory and PEFT write it.
ModuleChoice choice_of(const std::vector<std::string>& targets) {
  using Kind = ModuleChoice::Kind;
  if (targets.size() == 1) {
    if (targets[0] == "all" || targets[0] == "all-linear") return {.kind = Kind::kAllLinear};
    if (!is_name(targets[0])) return {.kind = Kind::kPattern, .pattern = targets[0]};
  }
  return {.kind = Kind::kNames, .names = targets};
}

bool scores(const config::RunConfig& config) {
  return config.stage == config::TrainingStage::kReward;
}

AdapterConfig new_adapter(const config::RunConfig& run) {
  const auto& keys = run.finetune;
  AdapterConfig config{.task_type = "CAUSAL_LM",
                       .rank = keys.lora_rank,
                       .alpha = static_cast<double>(keys.lora_alpha.value_or(2 * keys.lora_rank)),
                       .dropout = keys.lora_dropout,
                       .use_rslora = keys.use_rslora,
                       .use_dora = keys.use_dora,
                       .targets = choice_of(keys.lora_target),
                       .modules_to_save = keys.modules_to_save};
  for (const auto& [pattern, rank] : keys.rank_pattern) {
    config.rank_pattern.emplace_back(pattern, static_cast<int64_t>(rank));
  }
  for (const auto& [pattern, alpha] : keys.alpha_pattern) {
    config.alpha_pattern.emplace_back(pattern, alpha);
  }
  config.others["init_lora_weights"] = true;
  if (!scores(run)) return config;
  // As PEFT has it: the head is new, so that all of it trains and is saved.
  config.task_type = adapter::kScores;
  if (std::ranges::count(config.modules_to_save, "score") == 0) {
    config.modules_to_save.emplace_back("score");
  }
  return config;
}

FreezeOptions freeze_options(const config::RunConfig& run) {
  const auto& keys = run.finetune;
  FreezeOptions options{.trainable_layers = keys.freeze_trainable_layers,
                        .trainable_modules = keys.freeze_trainable_modules,
                        .extra_modules = keys.freeze_extra_modules,
                        .use_llama_pro = keys.use_llama_pro};
  // The head is new: frozen, it would score at random to the end.
  if (scores(run) && std::ranges::count(options.extra_modules, "score") == 0) {
    options.extra_modules.emplace_back("score");
  }
  return options;
}

// A key that means something for one finetuning_type alone.
struct Key {
  const char* name;
  FinetuningType type;
  bool differs;  // from the default
};

std::vector<Key> keys_of(const FinetuneConfig& keys) {
  const FinetuneConfig plain;
  const auto lora = FinetuningType::kLora, freeze = FinetuningType::kFreeze;
  const auto differs = [&](auto member) { return keys.*member != plain.*member; };
  using K = FinetuneConfig;
  return {{"adapter_name_or_path", lora, differs(&K::adapter_name_or_path)},
          {"lora_rank", lora, differs(&K::lora_rank)},
          {"lora_alpha", lora, differs(&K::lora_alpha)},
          {"lora_dropout", lora, differs(&K::lora_dropout)},
          {"lora_target", lora, differs(&K::lora_target)},
          {"rank_pattern", lora, differs(&K::rank_pattern)},
          {"alpha_pattern", lora, differs(&K::alpha_pattern)},
          {"use_rslora", lora, differs(&K::use_rslora)},
          {"use_dora", lora, differs(&K::use_dora)},
          {"loraplus_lr_ratio", lora, differs(&K::loraplus_lr_ratio)},
          {"modules_to_save", lora, differs(&K::modules_to_save)},
          {"freeze_trainable_layers", freeze, differs(&K::freeze_trainable_layers)},
          {"freeze_trainable_modules", freeze, differs(&K::freeze_trainable_modules)},
          {"freeze_extra_modules", freeze, differs(&K::freeze_extra_modules)},
          {"use_llama_pro", freeze, differs(&K::use_llama_pro)}};
}

std::vector<Key> keys_without_effect(const FinetuneConfig& keys) {
  auto all = keys_of(keys);
  std::erase_if(all,
                [&](const Key& key) { return !key.differs || key.type == keys.finetuning_type; });
  return all;
}

// What the adapter to go on with says otherwise.
std::vector<std::string> overruled(const config::Resolved& resolved) {
  const auto& keys = resolved.config.finetune;
  const auto asked = new_adapter(resolved.config);
  const auto found = read_adapter(keys.adapter_name_or_path);
  std::vector<std::string> names;
  const auto compare = [&](const char* key, bool same) {
    if (!same && resolved.origins.contains(key)) names.emplace_back(key);
  };
  compare("lora_rank", asked.rank == found.rank);
  compare("lora_alpha", asked.alpha == found.alpha);
  compare("lora_dropout", asked.dropout == found.dropout);
  compare("lora_target", asked.targets.kind == ModuleChoice::Kind::kAllLinear ||
                             std::set(asked.targets.names.begin(), asked.targets.names.end()) ==
                                 std::set(found.targets.names.begin(), found.targets.names.end()));
  compare("rank_pattern", asked.rank_pattern == found.rank_pattern);
  compare("alpha_pattern", asked.alpha_pattern == found.alpha_pattern);
  compare("use_rslora", asked.use_rslora == found.use_rslora);
  compare("use_dora", asked.use_dora == found.use_dora);
  compare("modules_to_save", asked.modules_to_save == found.modules_to_save);
  return names;
}

std::string last_word(const std::string& module) { return module.substr(module.rfind('.') + 1); }

std::string freeze_text(const FinetuneConfig& keys) {
  return fmt::format("freeze (freeze_trainable_layers {}, freeze_trainable_modules {}{}{})",
                     keys.freeze_trainable_layers, fmt::join(keys.freeze_trainable_modules, ","),
                     keys.freeze_extra_modules.empty() ? "" : ", freeze_extra_modules ",
                     fmt::join(keys.freeze_extra_modules, ",")) +
         (keys.use_llama_pro ? " use_llama_pro" : "");
}

// An adapter's folder has no config.json and none of the base's rows: nobody who opens it later
// would know of other positions, or have new rows.
void check_base_stays(const config::RunConfig& config) {
  if (stretches_positions(config)) {
    throw UserError(fmt::format(
        "rope_scaling={} changes the base's config.json, which an adapter does not hold: give "
        "finetuning_type=full or freeze, or a base whose config.json has it",
        config.model.rope_scaling));
  }
  const auto there = read_hf_config(config.model.model_name_or_path).dimensions().vocabulary;
  const auto wanted = read_run_model(config).dimensions().vocabulary;
  if (wanted != there) throw UserError(no_rows_message(wanted - there, wanted));
}

// Weights in 4 bits cannot be trained, nor are they worth more than they are told to be.
void check_four_bits(const config::Resolved& resolved) {
  const auto& model = resolved.config.model;
  const auto type = resolved.config.finetune.finetuning_type;
  if (model.quantization_bit == config::QuantizationBit::kNone) return;
  if (type != FinetuningType::kLora) {
    config::refuse(resolved.origin_of("quantization_bit"),
                   fmt::format("'quantization_bit: 4' is for adapters beside frozen weights, and "
                               "finetuning_type is {}, which trains the weights: give "
                               "finetuning_type=lora, or leave quantization_bit out",
                               config::to_text(type)));
  }
  if (model.dtype == DType::kF64) {
    config::refuse(resolved.origin_of("quantization_bit"),
                   "'quantization_bit: 4' computes in float32, bfloat16 or float16, and dtype is "
                   "float64: give dtype=float32, or leave quantization_bit out");
  }
}

// Rows of new tokens that stay as they were made; "": they train, or there are none.
std::string new_tokens_warning(const config::RunConfig& config) {
  if (config.model.new_special_tokens.empty() || config.model.model_name_or_path.empty()) return "";
  const auto tuned = tuned_model(config, read_run_model(config));
  std::string still;  // modules that a token's rows are in
  for (const auto& parameter : tuned.shapes.parameters) {
    const bool has_rows =
        parameter.kind == ModuleKind::kEmbedding || parameter.kind == ModuleKind::kHead;
    const auto module = parameter.name.substr(0, parameter.name.rfind('.'));
    if (!has_rows || parameter.trainable || tuned.adapters.contains(module)) continue;
    still += (still.empty() ? "" : ",") + last_word(module);
  }
  if (still.empty()) return "";
  const bool is_lora = config.finetune.finetuning_type == FinetuningType::kLora;
  return fmt::format("the rows of new_special_tokens in {0} do not train: {1}={0} trains them",
                     still, is_lora ? "modules_to_save" : "freeze_extra_modules");
}

}  // namespace

std::string no_rows_message(int64_t missing, int64_t wanted) {
  return fmt::format(
      "new_special_tokens need {} rows of the embedding that the base does not have, and an "
      "adapter cannot add them: give finetuning_type=full, or a base that has them (in "
      "transformers: resize_token_embeddings({}) and save_pretrained)",
      missing, wanted);
}

Tuning tuning_of(const config::RunConfig& config) {
  const auto& keys = config.finetune;
  Tuning tuning;
  if (keys.finetuning_type == FinetuningType::kFreeze) tuning.freeze = freeze_options(config);
  if (keys.finetuning_type != FinetuningType::kLora) return tuning;
  const fs::path folder = keys.adapter_name_or_path;
  tuning.lora = folder.empty() ? new_adapter(config) : read_adapter(folder);
  if (!folder.empty()) tuning.lora_file = (folder / adapter::kConfigName).string();
  if (config.model.quantization_bit == config::QuantizationBit::kFour) {
    tuning.four_bits = FourBits{.doubly = config.model.double_quantization};
  }
  return tuning;
}

TunedModel tuned_model(const config::RunConfig& config, const HfConfig& model) {
  return tune(model.architecture, tuning_of(config));
}

std::string adapter_config_of(const config::RunConfig& config, const HfConfig& model) {
  const auto tuning = tuning_of(config);
  if (!tuning.lora) return "";
  auto written = *tuning.lora;
  written.base_model = fs::absolute(config.model.model_name_or_path).lexically_normal().string();
  if (written.base_model.ends_with('/')) written.base_model.pop_back();
  written.fan_in_fan_out =
      std::ranges::count(model.shapes().parameters, ModuleKind::kTransposedLinear,
                         &ParameterShape::kind) > 0;
  written.others["inference_mode"] = true;
  if (written.targets.kind == ModuleChoice::Kind::kAllLinear) {
    std::set<std::string> names;
    for (const auto& [module, shape] : tune(model.architecture, tuning).adapters) {
      names.insert(last_word(module));
    }
    written.targets = {.kind = ModuleChoice::Kind::kNames, .names = {names.begin(), names.end()}};
  }
  return adapter::adapter_config_json(written);
}

TuningIdentity tuning_identity(const config::RunConfig& config, const HfConfig& model) {
  const auto& keys = config.finetune;
  if (keys.finetuning_type == FinetuningType::kFull) return {};
  if (keys.finetuning_type == FinetuningType::kFreeze) return {.type = freeze_text(keys)};
  const auto& base = config.model.model_name_or_path;
  return {.type = "lora",
          .base = base,
          .base_digest = checkpoint::weights_digest(checkpoint::open_model_files(base)),
          .adapter_config = adapter_config_of(config, model)};
}

void take_adapter_tokenizer(config::Resolved& resolved) {
  auto& model = resolved.config.model;
  const auto& keys = resolved.config.finetune;
  const fs::path folder = keys.adapter_name_or_path;
  const bool is_lora = keys.finetuning_type == FinetuningType::kLora;
  if (!is_lora || folder.empty() || !model.tokenizer_name_or_path.empty()) return;
  const bool is_adapter = fs::exists(folder / adapter::kConfigName);
  if (!is_adapter || !text::has_tokenizer(folder)) return;
  model.tokenizer_name_or_path = keys.adapter_name_or_path;
  resolved.notes.push_back(
      fmt::format("tokenizer_name_or_path is {}: an adapter's own tokenizer and template count; "
                  "tokenizer_name_or_path={} takes the base's",
                  keys.adapter_name_or_path, model.model_name_or_path));
}

void check_finetune_keys(const config::Resolved& resolved) {
  const auto& keys = resolved.config.finetune;
  // A key that is given at its default is meant all the same.
  const bool forgotten = !resolved.origins.contains("finetuning_type");
  for (const auto& key : keys_of(keys)) {
    const bool is_given = key.differs || (forgotten && resolved.origins.contains(key.name));
    if (key.type == keys.finetuning_type || !is_given) continue;
    if (!forgotten && std::string_view(key.name) != "adapter_name_or_path") continue;
    throw UserError(fmt::format(
        "{}: {} has no effect with finetuning_type {}: give finetuning_type={}, or leave it out",
        resolved.origin_of(key.name).place(), key.name, config::to_text(keys.finetuning_type),
        config::to_text(key.type)));
  }
  check_four_bits(resolved);
  if (keys.finetuning_type == FinetuningType::kFull) return;
  if (resolved.config.model.train_from_scratch) {
    throw UserError(
        fmt::format("finetuning_type={} keeps weights as they are, and train_from_scratch=true has "
                    "none worth keeping: leave one of the two out",
                    config::to_text(keys.finetuning_type)));
  }
  const bool has_model = !resolved.config.model.model_name_or_path.empty();
  if (keys.finetuning_type == FinetuningType::kLora && has_model) check_base_stays(resolved.config);
}

std::vector<std::string> finetune_warnings(const config::Resolved& resolved) {
  const auto& keys = resolved.config.finetune;
  std::vector<std::string> warnings;
  for (const auto& key : keys_without_effect(keys)) {
    warnings.push_back(fmt::format("{} has no effect with finetuning_type {}", key.name,
                                   config::to_text(keys.finetuning_type)));
  }
  if (resolved.config.model.quantization_bit == config::QuantizationBit::kNone &&
      resolved.origins.contains("double_quantization")) {
    warnings.emplace_back("double_quantization has no effect without quantization_bit=4");
  }
  if (auto warning = new_tokens_warning(resolved.config); !warning.empty()) {
    warnings.push_back(std::move(warning));
  }
  const bool is_lora = keys.finetuning_type == FinetuningType::kLora;
  if (!is_lora || keys.adapter_name_or_path.empty()) return warnings;
  if (const auto names = overruled(resolved); !names.empty()) {
    warnings.push_back(
        fmt::format("{} differ from what {} says, which counts", fmt::join(names, ", "),
                    (fs::path(keys.adapter_name_or_path) / adapter::kConfigName).string()));
  }
  return warnings;
}

void check_adapter(const config::RunConfig& config, const HfConfig& model) {
  const fs::path folder = config.finetune.adapter_name_or_path;
  if (folder.empty()) return;
  const auto tuning = tuning_of(config);
  const bool is_reward = tuning.lora->task_type == adapter::kScores;
  if (is_reward != scores(config)) {
    throw UserError(fmt::format(
        "adapter_name_or_path: {} is an adapter {}; {}", folder.string(),
        is_reward ? "of a reward model" : "that scores nothing",
        is_reward ? "stage: rm goes on with it"
                  : fmt::format("stage: rm needs a head that does: `skein merge {} --out DIR`, and "
                                "give DIR as model_name_or_path",
                                folder.string())));
  }
  // First of all: beside another base its modules and shapes fit by chance at best.
  check_adapter_base(folder, {.folder = config.model.model_name_or_path,
                              .said_by = "model_name_or_path",
                              .cure = "Give its base, or no adapter_name_or_path"});
  const auto tuned = tune(model.architecture, tuning);
  checkpoint::LoadOptions options{.foreign = false, .adapter = true};
  const auto files = checkpoint::open_model_files(folder, checkpoint::kAdapterStem);
  const auto& parameters = tuned.shapes.parameters;
  const auto names = adapter::stored_names(parameters, files.tensors);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const auto& shape = parameters[i].shape;
    options.tensors.push_back({.name = names[i], .shape = {shape.begin(), shape.end()}});
  }
  if (const auto again = adapter::embedding_again(parameters, files.tensors); !again.empty()) {
    const auto& shape = parameters.front().shape;
    options.tensors.push_back({.name = again, .shape = {shape.begin(), shape.end()}});
  }
  checkpoint::require_match(files, options);
}

}  // namespace skein::plan
