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

#include "skein/config/compat/key_rule.h"
#include "skein/config/syntax/node.h"

namespace skein::config {

const std::vector<KeyRule>& known_keys();
// Null when the key is not in the table.
const KeyRule* find_known_key(std::string_view key);
// A bare `--key` of it means true, and the next word is not its value unless it is a boolean.
bool is_flag(const KeyRule& rule);

// Throws UserError for a feature that is asked for; returns a note, empty when there is none.
std::string check_known_key(const KeyRule& rule, const Setting& setting);

}  // namespace skein::config
