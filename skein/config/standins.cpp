// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/standins.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "skein/config/values.h"

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

[[noreturn]] void refuse_fp16(const Setting& setting) {
  refuse(setting.value.origin,
         fmt::format("'{}: {}' is known, but this version does not support it (use bf16)",
                     setting.key, setting.value.shown()));
}

// An explicit false must not end up as bfloat16 on a GPU that has it, so it means float32.
Result bf16(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word == "auto") return stands_for(setting, "dtype", "auto");
  const auto on = parse_bool(word);
  if (!on) refuse_choice(setting, "true, false or auto");
  return stands_for(setting, "dtype", *on ? "bfloat16" : "float32");
}

Result pure_bf16(const Setting& setting, Notes& notes) {
  if (parse_bool(setting.value.text) == false) return std::nullopt;
  return bf16(setting, notes);
}

Result mixed_precision(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word == "bf16" || word == "bfloat16") return stands_for(setting, "dtype", "bfloat16");
  if (word == "no" || word == "none" || word == "false" || word == "fp32" || word == "null") {
    return stands_for(setting, "dtype", "float32");
  }
  if (word == "fp16" || word == "float16") refuse_fp16(setting);
  refuse_choice(setting, "bf16 or no");
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
  notes.push_back(fmt::format(
      "{}: 'fp16_opt_level' is apex's key and has no effect: this version has no fp16", where));
  return std::nullopt;
}

Result grad_accum_dtype(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  const bool fp32 = word == "fp32" || word == "float32";
  if (!fp32 && word != "auto") refuse_choice(setting, "fp32 or auto");
  return stands_for(setting, "grad_accum_fp32", fp32 ? "true" : "false");
}

Result optim(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  for (const auto* same : {"adamw_torch", "adamw_torch_fused", "adamw", "adamw_hf"}) {
    if (word == same) return std::nullopt;
  }
  refuse(setting.value.origin,
         fmt::format("'{}: {}' is not supported by this version: it has adamw_torch", setting.key,
                     setting.value.shown()));
}

// DeepSpeed's own launcher adds a bare --deepspeed; false and null switch a parent's file off.
Result deepspeed(const Setting& setting, Notes&) {
  if (is_absent(setting.value) || parse_bool(setting.value.text) == false) {
    return Setting{std::string(kDeepSpeedKey), Node{}, setting.origin};
  }
  if (parse_bool(setting.value.text) == true) return std::nullopt;
  return Setting{std::string(kDeepSpeedKey), setting.value, setting.origin};
}

Result deepspeed_conflict(const Setting& setting, Notes&) {
  const auto word = lower(setting.value.shown());
  if (word != "error" && word != "override") refuse_choice(setting, "error or override");
  return stands_for(setting, setting.key, word);
}

const std::map<std::string_view, Result (*)(const Setting&, Notes&)> kStandins = {
    {"bf16", bf16},
    {"pure_bf16", pure_bf16},
    {"mixed_precision", mixed_precision},
    {"use_mixed_precision", use_mixed_precision},
    {"fp16_opt_level", fp16_opt_level},
    {"grad_accum_dtype", grad_accum_dtype},
    {"optim", optim},
    {"optimizer", optim},
    {kDeepSpeedKey, deepspeed},
    {"deepspeed_config", deepspeed},
    {"deepspeed.config_path", deepspeed},
    {kDeepSpeedConflictKey, deepspeed_conflict},
};

}  // namespace

bool is_standin(std::string_view key) { return kStandins.contains(key); }

bool is_standin_flag(std::string_view key) {
  return key == "bf16" || key == "pure_bf16" || key == "use_mixed_precision";
}

std::vector<std::string> standin_names() {
  std::vector<std::string> names;
  for (const auto& [name, resolve] : kStandins) names.emplace_back(name);
  return names;
}

Result resolve_standin(const Setting& setting, Notes& notes) {
  const auto resolve = kStandins.at(setting.key);
  if (is_null(setting.value) && resolve != deepspeed) return std::nullopt;
  return resolve(setting, notes);
}

}  // namespace skein::config
