// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Keys of other trainers that have no field here: which are harmless, and which ask for something
// this version cannot do?
//
// They are never "unknown". A key that asks for a missing feature is refused, unless its value
// says that the feature is off.

#include <string>
#include <string_view>
#include <vector>

#include "skein/config/syntax/node.h"

namespace skein::config {

struct KnownKey {
  std::string_view name;  // a trailing '*' stands for any ending
  enum class Status { kNotBuilt, kNoEffect } status;
  std::string_view why;                    // shown to the user
  std::vector<std::string_view> off = {};  // kNotBuilt: values that are accepted and do nothing
};

const std::vector<KnownKey>& known_keys();
// Null when the key is not in the table.
const KnownKey* find_known_key(std::string_view key);
// A bare `--key` of it means true, and the next word is not its value unless it is a boolean.
bool is_flag(const KnownKey& key);

// Throws UserError for a feature that is asked for; returns a note, empty when there is none.
std::string check_known_key(const KnownKey& key, const Setting& setting);

}  // namespace skein::config
