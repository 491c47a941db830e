// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which known words did a misspelt one mean?

#include <string>
#include <string_view>
#include <vector>

namespace skein::config {

// "; did you mean 'a', 'b' or 'c'?", the nearest first, or nothing when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace skein::config
