// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The table of DeepSpeed's keys, and what becomes of each.

#include <string>
#include <string_view>
#include <vector>

#include "skein/config/compat/key_rule.h"

namespace skein::config {

// Null for a key that DeepSpeed does not have. The bare names of `stage3_…` keys are accepted. Of a
// key that is honoured `detail` is ours, with the same value; empty: deepspeed.cpp knows more.
const KeyRule* find_deepspeed_rule(std::string_view path);
// Are there keys below it?
bool is_deepspeed_section(std::string_view path);
std::vector<std::string> deepspeed_key_names();

}  // namespace skein::config
