// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which field does a spelling mean?

#include <map>
#include <set>
#include <string>
#include <vector>

namespace skein::config {

struct FieldIndex {
  std::map<std::string, std::string> canonical;  // every spelling of every field
  std::set<std::string> booleans;                // canonical names
};

// Made once from RunConfig's field list.
const FieldIndex& field_index();

// Is it a spelling of a field, a key that stands for another's value, or one of another trainer?
bool is_key(const std::string& spelling);
// Those of fields and of keys that stand for them, for suggestions.
std::vector<std::string> key_spellings();

}  // namespace skein::config
