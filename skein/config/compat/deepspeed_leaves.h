// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The leaves of a DeepSpeed file: every value that is no section, under its path.

#include <algorithm>
#include <span>
#include <string_view>

#include "skein/config/syntax/node.h"
#include "skein/config/syntax/values.h"

namespace skein::config {

// Null where there is none.
inline const Setting* find_leaf(std::span<const Setting> leaves, std::string_view path) {
  const auto found = std::ranges::find(leaves, path, &Setting::key);
  return found == leaves.end() ? nullptr : &*found;
}

// The YAML or the default decides.
inline bool is_auto(const Setting& leaf) { return lower(leaf.value.text) == "auto"; }

}  // namespace skein::config
