// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/translated_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

using Result = std::optional<Setting>;
using Notes = std::vector<std::string>;

Setting stands_for(const Setting& setting, const std::string& key, const std::string& text) {
  return {key, scalar(text, setting.value.origin), setting.origin};
}

[[noreturn]] void refuse_choice(const Setting& setting, const std::string& choices) {
  refuse(setting.value.origin,
         fmt::format("'{}' must be {}, not '{}'", setting.key, choices, setting.value.shown()));
}

// An explicit false must not end up as bfloat16 on a GPU that has it, so it means float32.
Result bf16(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word == "auto") return stands_for(setting, "dtype", "auto");
  const auto on = parse_bool(word);
  if (!on) refuse_choice(setting, "true, false or auto");
  return stands_for(setting, "dtype", *on ? "bfloat16" : "float32");
}

Result mixed_precision(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word == "bf16" || word == "bfloat16") return stands_for(setting, "dtype", "bfloat16");
  if (word == "no" || word == "none" || word == "false" || word == "fp32" || word == "null") {
    return stands_for(setting, "dtype", "float32");
  }
  if (word == "fp16" || word == "float16") return stands_for(setting, "dtype", "float16");
  refuse_choice(setting, "bf16, fp16 or no");
}

Result fp16(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word == "auto") return stands_for(setting, "dtype", "auto");
  const auto on = parse_bool(word);
  if (!on) refuse_choice(setting, "true, false or auto");
  if (!*on) return std::nullopt;
  return stands_for(setting, "dtype", "float16");
}

Result reporter(const Setting& setting, const std::string& name) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  if (!*on) return std::nullopt;
  return stands_for(setting, "report_to", name);
}
Result use_tensorboard(const Setting& setting, Notes&) { return reporter(setting, "tensorboard"); }
Result use_wandb(const Setting& setting, Notes&) { return reporter(setting, "wandb"); }

// LLaMA-Factory and axolotl: a share of the data, or a number of rows.
Result val_size(const Setting& setting, Notes&) {
  if (is_absent(setting.value)) return std::nullopt;
  const auto share = parse_real(setting.value.text);
  if (!share || *share < 0) refuse_choice(setting, "a share of the data below 1, or rows");
  if (*share >= 1) return Setting{"validation_rows", setting.value, setting.origin};
  return stands_for(setting, "validation_split_percentage", fmt::format("{:.12g}", *share * 100));
}

// LLaMA-Factory counts documents; what is counted here depends on the stage (load.cpp).
Result max_samples(const Setting& setting, Notes&) {
  return Setting{"max_train_samples", setting.value, setting.origin};
}

// TRL: where the loss is, said the other way round.
Result not_on_prompt(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  return stands_for(setting, "train_on_prompt", *on ? "false" : "true");
}

Result use_peft(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  return stands_for(setting, "finetuning_type", *on ? "lora" : "full");
}

// axolotl's qlora is LoRA beside weights in 4 bits: translate() adds the second key.
bool is_qlora(const Setting& setting) {
  return setting.key == "adapter" && lower(setting.value.text) == "qlora";
}

Result adapter(const Setting& setting, Notes&) {
  if (is_absent(setting.value) || parse_bool(setting.value.text) == false) return std::nullopt;
  const auto word = lower(setting.value.shown());
  if (word != "lora" && word != "qlora") {
    refuse(setting.value.origin,
           fmt::format("'adapter' must be lora, qlora (lora beside weights in 4 bits) or none, not "
                       "'{}'; DoRA is adapter: lora with use_dora: true",
                       setting.value.shown()));
  }
  return stands_for(setting, "finetuning_type", "lora");
}

Result load_in_4bit(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  return stands_for(setting, "quantization_bit", *on ? "4" : "none");
}

Result lora_target_linear(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  if (!*on) return std::nullopt;
  return stands_for(setting, "lora_target", "all");
}

// LLaMA-Factory packs where it is on; packed rows never see each other here.
Result neat_packing(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  if (!*on) return std::nullopt;
  return stands_for(setting, "packing", "true");
}

Result rope_type(const Setting& setting, Notes&) {
  return Setting{"rope_scaling", setting.value, setting.origin};
}
Result rope_factor(const Setting& setting, Notes&) {
  return Setting{"rope_scaling_factor", setting.value, setting.origin};
}

Result use_cpu(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  if (!*on) return std::nullopt;
  return stands_for(setting, "device", "cpu");
}

Result auto_resume(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  return stands_for(setting, "resume_from_checkpoint", *on ? "auto" : "false");
}

Result do_eval(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  return stands_for(setting, setting.key, *on ? "true" : "false");
}

Result use_mixed_precision(const Setting& setting, Notes&) {
  const auto on = parse_bool(setting.value.text);
  if (!on) refuse_choice(setting, "true or false");
  return stands_for(setting, "dtype", *on ? "auto" : "float32");
}

Result fp16_opt_level(const Setting& setting, Notes& notes) {
  const auto word = lower(setting.value.shown());
  if (word != "o0" && word != "o1" && word != "o2" && word != "o3") {
    refuse_choice(setting, "O0, O1, O2 or O3");
  }
  const auto where = setting.origin.place();
  if (word == "o0") {
    notes.push_back(
        fmt::format("{}: 'fp16_opt_level' is apex's key: O0 is read as dtype: float32", where));
    return stands_for(setting, "dtype", "float32");
  }
  // Files of other trainers carry it beside `fp16: false`.
  notes.push_back(fmt::format(
      "{}: 'fp16_opt_level' is apex's key and has no effect: fp16: true asks for float16", where));
  return std::nullopt;
}

Result grad_accum_dtype(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  const bool fp32 = word == "fp32" || word == "float32";
  if (!fp32 && word != "auto") refuse_choice(setting, "fp32 or auto");
  return stands_for(setting, "grad_accum_fp32", fp32 ? "true" : "false");
}

// DeepSpeed's own launcher adds a bare --deepspeed; false and null switch a parent's file off.
Result deepspeed(const Setting& setting, Notes& notes) {
  if (is_absent(setting.value) || parse_bool(setting.value.text) == false) {
    return Setting{std::string(kDeepSpeedKey), Node{}, setting.origin};
  }
  if (parse_bool(setting.value.text) == true) {
    notes.push_back(fmt::format("{}: '{}: true' has no effect: it names no file, as {}: FILE.json",
                                setting.origin.place(), setting.key, setting.key));
    return std::nullopt;
  }
  return Setting{std::string(kDeepSpeedKey), setting.value, setting.origin};
}

Result deepspeed_conflict(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word != "error" && word != "override") refuse_choice(setting, "error or override");
  return stands_for(setting, setting.key, word);
}

// axolotl names losses where others have a stage; translate() adds the loss.
std::string loss_of_rl(const Setting& setting) {
  const auto word = lower(setting.value.text);
  const bool is_loss = word == "ipo" || word == "orpo" || word == "simpo";
  return setting.key == "rl" && is_loss ? word : "";
}

Result rl(const Setting& setting, Notes&) {
  if (is_absent(setting.value)) return std::nullopt;
  const auto word = loss_of_rl(setting).empty() ? setting.value.text : "dpo";
  return stands_for(setting, "stage", word);
}

const std::map<std::string_view, Result (*)(const Setting&, Notes&)> kTranslations = {
    {"bf16", bf16},
    {"fp16", fp16},
    {"mixed_precision", mixed_precision},
    {"use_mixed_precision", use_mixed_precision},
    {"fp16_opt_level", fp16_opt_level},
    {"grad_accum_dtype", grad_accum_dtype},
    {kDeepSpeedKey, deepspeed},
    {"deepspeed_config", deepspeed},
    {"deepspeed.config_path", deepspeed},
    {kDeepSpeedConflictKey, deepspeed_conflict},
    {"use_tensorboard", use_tensorboard},
    {"use_wandb", use_wandb},
    {"use_cpu", use_cpu},
    {"no_cuda", use_cpu},
    {"val_size", val_size},
    {"val_set_size", val_size},
    {kMaxSamplesKey, max_samples},
    {"assistant_only_loss", not_on_prompt},
    {"completion_only_loss", not_on_prompt},
    {"use_peft", use_peft},
    {"adapter", adapter},
    {"load_in_4bit", load_in_4bit},
    {"lora_target_linear", lora_target_linear},
    {"neat_packing", neat_packing},
    {"rl", rl},
    {"rope_scaling.type", rope_type},
    {"rope_scaling.rope_type", rope_type},
    {"rope_scaling.factor", rope_factor},
    {"auto_resume_from_checkpoints", auto_resume},
    {kDoEvalKey, do_eval},
};

}  // namespace

bool is_translated_key(std::string_view key) { return kTranslations.contains(key); }

bool is_translated_flag(std::string_view key) {
  constexpr std::string_view kFlags[] = {"bf16",
                                         "fp16",
                                         "use_mixed_precision",
                                         "use_tensorboard",
                                         "use_wandb",
                                         "assistant_only_loss",
                                         "completion_only_loss",
                                         "use_peft",
                                         "load_in_4bit",
                                         "neat_packing",
                                         "lora_target_linear",
                                         kDoEvalKey,
                                         "auto_resume_from_checkpoints"};
  return std::ranges::count(kFlags, key) > 0;
}

bool is_off_word(const std::string& text) {
  const auto word = lower(text);
  return word == "none" || parse_bool(word) == false;
}

bool is_offload_word(const std::string& text) { return lower(text) == "offload"; }

std::vector<std::string> translated_keys() {
  std::vector<std::string> names;
  for (const auto& [name, resolve] : kTranslations) names.emplace_back(name);
  return names;
}

std::optional<std::vector<Setting>> translate_value(std::string_view key, const Setting& setting,
                                                    Notes& notes) {
  if (key != "reward_model") return std::nullopt;
  const auto on = parse_bool(setting.value.text);
  if (!on) return std::nullopt;
  if (!*on) return std::vector<Setting>();
  notes.push_back(
      fmt::format("{}: '{}: true' is axolotl's stage: rm; for rewards it takes a folder",
                  setting.origin.place(), setting.key));
  return std::vector{stands_for(setting, "stage", "rm")};
}

std::vector<Setting> translate(const Setting& setting, Notes& notes) {
  const auto resolve = kTranslations.at(setting.key);
  if (is_null(setting.value) && resolve != deepspeed) return {};
  const auto first = resolve(setting, notes);
  if (!first) return {};
  std::vector<Setting> settings{*first};
  if (is_qlora(setting)) settings.push_back(stands_for(setting, "quantization_bit", "4"));
  const auto loss = loss_of_rl(setting);
  if (!loss.empty()) settings.push_back(stands_for(setting, "pref_loss", loss));
  return settings;
}

}  // namespace skein::config
