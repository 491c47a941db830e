// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The table of DeepSpeed's keys, and what becomes of each.

#include <string>
#include <string_view>
#include <vector>

namespace skein::config {

struct DeepSpeedRule {
  enum class Status { kHonoured, kEmulated, kNoEffect, kRefused };
  std::string_view path;  // a trailing '*' stands for any ending
  Status status;
  std::string_view detail;                 // honoured: our key; else the reason
  std::vector<std::string_view> off = {};  // kRefused: values that ask for nothing
};

// Null for a key that DeepSpeed does not have. The bare names of `stage3_…` keys are accepted.
const DeepSpeedRule* find_deepspeed_rule(std::string_view path);
std::vector<std::string> deepspeed_key_names();

}  // namespace skein::config
