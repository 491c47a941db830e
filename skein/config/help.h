// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// All keys with their defaults, other spellings and meaning, from the field lists.

#include <string>
#include <vector>

namespace skein::config {

struct KeyHelp {
  std::string name;
  std::string value;    // the default, as YAML
  std::string aliases;  // joined with commas
  std::string help;
};

std::vector<KeyHelp> key_help();
// The same as text for a terminal.
std::string key_list();

}  // namespace skein::config
