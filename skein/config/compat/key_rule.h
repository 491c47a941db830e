// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What becomes of a key that belongs to another tool?

#include <string_view>
#include <vector>

#include "skein/config/syntax/node.h"

namespace skein::config {

struct KeyRule {
  enum class Status {
    kHonoured,  // it sets one of our keys
    kEmulated,  // what it asks for happens in another way
    kNoEffect,
    kLaunchFlag,  // it says how to start ranks
    kRefused,     // a feature that this version does not have
  };

  std::string_view key;  // a trailing '*' stands for any ending
  Status status;
  std::string_view detail;                 // kHonoured: our key; else the reason, for the user
  std::vector<std::string_view> off = {};  // kRefused: values that ask for nothing

  bool matches(std::string_view other) const;
  // Whether `value` is one of `off`, in any spelling: `off` is `false`, and `0.0` is `0`.
  bool is_off(const Node& value) const;
};

}  // namespace skein::config
