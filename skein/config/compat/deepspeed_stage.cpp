// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed_stage.h"

#include <fmt/format.h>

#include <string_view>

#include "skein/config/compat/deepspeed_keys.h"
#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

constexpr std::string_view kStage = "zero_optimization.stage";
constexpr std::string_view kRatio = "zero_optimization.offload_optimizer.ratio";

// The lowest stage that a key, with its value, makes sense at.
int64_t least_stage(const Setting& leaf) {
  const std::string_view key = leaf.key;
  const auto word = lower(leaf.value.text);
  if (word == "auto" || is_null(leaf.value)) return 0;
  const auto* rule = find_deepspeed_rule(key);  // of the bare names too
  if (rule && rule->key.starts_with("zero_optimization.stage3_")) return 3;
  if (key == kRatio) return parse_real(word) == 1.0 ? 0 : 3;
  const bool is_off = word == "none" || parse_bool(word) == false;
  if (is_off) return 0;
  if (key == "zero_optimization.offload_param.device") return 3;
  if (key == "zero_optimization.cpu_offload_params") return 3;
  if (key == "zero_optimization.offload_optimizer.device") return 1;
  if (key == "zero_optimization.cpu_offload") return 1;
  return 0;
}

void check_ratio(const Setting& leaf) {
  const auto ratio = parse_real(leaf.value.text);
  if (ratio && *ratio >= 0 && *ratio <= 1) return;
  refuse(leaf.value.origin, fmt::format("'{}' is the share of the states that leaves the GPU: it "
                                        "must be from 0 to 1, not '{}'",
                                        leaf.key, leaf.value.shown()));
}

}  // namespace

void check_deepspeed_stage(std::span<const Setting> leaves) {
  int64_t stage = 0;
  for (const auto& leaf : leaves) {
    if (leaf.key == kStage) stage = parse_integer(leaf.value.text).value_or(3);  // auto: any
    if (leaf.key == kRatio) check_ratio(leaf);
  }
  for (const auto& leaf : leaves) {
    const auto least = least_stage(leaf);
    if (least <= stage) continue;
    refuse(leaf.origin,
           fmt::format("'{}: {}' is for {} {}, but '{}' is {}: remove it, or set the stage to {}",
                       leaf.key, leaf.value.shown(), least == 3 ? "stage" : "stages from", least,
                       kStage, stage, least));
  }
}

}  // namespace skein::config
