// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which known words did a misspelt one mean?

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::config {

// "; did you mean 'a', 'b' or 'c'?", the nearest first, or nothing when none is near: within
// `most_slips` of the keyboard, a third of its letters unless given.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::optional<size_t> most_slips = std::nullopt);

}  // namespace skein::config
