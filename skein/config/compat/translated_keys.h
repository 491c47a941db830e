// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Keys that stand for another key's value: `bf16: true` is `dtype: bfloat16`.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/config/syntax/node.h"

namespace skein::config {

// These steer loading itself and are no fields of a run.
inline constexpr std::string_view kDeepSpeedKey = "deepspeed";
inline constexpr std::string_view kDeepSpeedConflictKey = "deepspeed_conflict";
inline constexpr std::string_view kDoEvalKey = "do_eval";

// A spelling of max_train_samples that counts something else elsewhere.
inline constexpr std::string_view kMaxSamplesKey = "max_samples";

// no, none, off, false: what a strategy says when there is none.
bool is_off_word(const std::string& text);

// `gradient_checkpointing: offload`.
bool is_offload_word(const std::string& text);

bool is_translated_key(std::string_view key);
// Its bare `--key` means true.
bool is_translated_flag(std::string_view key);
std::vector<std::string> translated_keys();

// A key of a run whose value is another tool's: axolotl's `reward_model: true` is `stage: rm`.
// Absent: it is the run's own value; else as translate().
std::optional<std::vector<Setting>> translate_value(std::string_view key, const Setting& setting,
                                                    std::vector<std::string>& notes);

// The canonical settings that it stands for; none when the value asks for what happens anyway.
// The values keep their origin. Throws UserError; may add notes.
std::vector<Setting> translate(const Setting& setting, std::vector<std::string>& notes);

}  // namespace skein::config
