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

}  // namespace skein::config
