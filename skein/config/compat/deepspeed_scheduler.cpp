// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed_scheduler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "skein/config/compat/deepspeed_leaves.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

constexpr std::string_view kType = "scheduler.type", kParameters = "scheduler.params.";

struct Parameter {
  std::string_view name, key;  // of DeepSpeed, and ours
};

// Of every type: the step it begins behind, which is -1 unless somebody continues by hand.
constexpr std::string_view kFirstStep = "last_batch_iteration";

void check_first_step(const Setting& leaf) {
  if (is_auto(leaf) || is_null(leaf.value) || parse_integer(leaf.value.text) == -1) return;
  refuse(leaf.value.origin,
         fmt::format("'{}' must be -1, not '{}': where a run continues, its checkpoint says",
                     leaf.key, leaf.value.shown()));
}

const Setting* find_parameter(std::span<const Setting> leaves, std::string_view name) {
  return find_leaf(leaves, fmt::format("{}{}", kParameters, name));
}

}  // namespace

struct DeepSpeedScheduler::Type {
  std::string_view name;
  std::vector<Parameter> parameters;
};

std::span<const DeepSpeedScheduler::Type> DeepSpeedScheduler::types() {
  static const std::vector<Type> kTypes = {
      {"WarmupLR",
       {{"warmup_min_lr", "warmup_min_lr"},
        {"warmup_max_lr", "learning_rate"},
        {"warmup_num_steps", "warmup_steps"},
        {"warmup_type", "warmup_type"}}},
      {"WarmupDecayLR",
       {{"total_num_steps", "total_num_steps"},
        {"warmup_min_lr", "warmup_min_lr"},
        {"warmup_max_lr", "learning_rate"},
        {"warmup_num_steps", "warmup_steps"},
        {"warmup_type", "warmup_type"}}},
      {"WarmupCosineLR",
       {{"total_num_steps", "total_num_steps"},
        {"warmup_min_ratio", "warmup_min_ratio"},
        {"warmup_num_steps", "warmup_steps"},
        {"cos_min_ratio", "cos_min_ratio"},
        {"warmup_type", "warmup_type"}}},
      {"OneCycle",
       {{"cycle_min_lr", "cycle_min_lr"},
        {"cycle_max_lr", "learning_rate"},
        {"decay_lr_rate", "decay_lr_rate"},
        {"cycle_first_step_size", "cycle_first_step_size"},
        {"cycle_second_step_size", "cycle_second_step_size"},
        {"cycle_first_stair_count", "cycle_first_stair_count"},
        {"cycle_second_stair_count", "cycle_second_stair_count"},
        {"decay_step_size", "decay_step_size"},
        {"cycle_momentum", ""},
        {"cycle_min_mom", ""},
        {"cycle_max_mom", ""},
        {"decay_mom_rate", ""}}},
      {"LRRangeTest",
       {{"lr_range_test_min_lr", "learning_rate"},
        {"lr_range_test_step_size", "lr_range_test_step_size"},
        {"lr_range_test_step_rate", "lr_range_test_step_rate"},
        {"lr_range_test_staircase", "lr_range_test_staircase"}}},
  };
  return kTypes;
}

DeepSpeedScheduler::DeepSpeedScheduler(std::span<const Setting> leaves, DsCompat compat) {
  const auto* given = find_leaf(leaves, kType);
  if (!given) {
    for (const auto& leaf : leaves) {
      if (leaf.key.starts_with(kParameters)) refuse(leaf.origin, "the 'scheduler' has no 'type'");
    }
    return;
  }
  const auto word = lower(given->value.text);
  std::vector<std::string> names;
  for (const auto& type : types()) {
    if (lower(std::string(type.name)) == word) type_ = &type;
    names.emplace_back(type.name);
  }
  if (!type_) {
    refuse(given->value.origin,
           fmt::format("'scheduler.type' must be one of {}, not '{}'{}", fmt::join(names, ", "),
                       given->value.shown(), did_you_mean(given->value.text, names)));
  }
  check_parameters(leaves);
  find_defaults(leaves, compat);
}

void DeepSpeedScheduler::check_parameters(std::span<const Setting> leaves) const {
  std::vector<std::string> names;
  for (const auto& parameter : type_->parameters) names.emplace_back(parameter.name);
  for (const auto& leaf : leaves) {
    if (!leaf.key.starts_with(kParameters)) continue;
    const auto name = leaf.key.substr(kParameters.size());
    if (std::ranges::count(names, name) > 0) continue;
    if (name == kFirstStep) {
      check_first_step(leaf);
      continue;
    }
    refuse(leaf.origin,
           fmt::format("'{}' is not a parameter of {}, which has {}{}", leaf.key, type_->name,
                       fmt::join(names, ", "), did_you_mean(name, names)));
  }
  if (type_->name != "OneCycle") return;
  const auto& section = find_leaf(leaves, kType)->origin;
  for (const auto* name : {"cycle_min_lr", "cycle_max_lr"}) {
    if (!find_parameter(leaves, name)) refuse(section, fmt::format("OneCycle needs '{}'", name));
  }
  const auto* momentum = find_parameter(leaves, "cycle_momentum");
  if (momentum && parse_bool(momentum->value.text) == false) return;
  refuse(momentum ? momentum->value.origin : section,
         "OneCycle moves beta1 too unless \"cycle_momentum\" is false, which this version does not "
         "support: add \"cycle_momentum\": false");
}

void DeepSpeedScheduler::find_defaults(std::span<const Setting> leaves, DsCompat compat) {
  const auto absent = [&](std::string_view name, std::string_view value) {
    for (const auto& [parameter, key] : type_->parameters) {
      if (parameter == name && !find_parameter(leaves, name)) {
        defaults_.push_back({parameter, key, value});
      }
    }
  };
  absent("warmup_num_steps", "1000");
  absent("lr_range_test_min_lr", "1e-3");
  // 0.19 takes the optimizer's for WarmupLR.
  if (type_->name == "WarmupDecayLR" || compat == DsCompat::k0_16) absent("warmup_max_lr", "1e-3");
  for (const auto& [parameter, key] : type_->parameters) {
    const auto* leaf = find_parameter(leaves, parameter);
    if (key == "learning_rate" && leaf && !is_auto(*leaf)) rate_parameter_ = parameter;
  }
  for (const auto& [parameter, key, value] : defaults_) {
    if (key == "learning_rate") rate_parameter_ = parameter;
  }
}

std::string_view DeepSpeedScheduler::key_of(std::string_view path) const {
  if (path == kType) return "lr_scheduler_type";
  const auto found =
      std::ranges::find(type_->parameters, path.substr(kParameters.size()), &Parameter::name);
  return found == type_->parameters.end() ? "" : found->key;
}

}  // namespace skein::config
