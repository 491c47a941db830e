// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Numbers and lists that a user or another program has written.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "skein/core/error.h"

namespace skein::launch {

// Nothing unless all of `text` is a number from `low` to `high`.
inline std::optional<int> read_number(std::string_view text, int low, int high) {
  int value = 0;
  const auto* begin = std::to_address(text.begin());
  const auto* end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < low || value > high) return {};
  return value;
}

// Throws UserError that names `origin`: a flag or a variable.
inline int need_number(std::string_view text, std::string_view origin, int low, int high) {
  const auto value = read_number(text, low, high);
  if (value) return *value;
  throw UserError(
      fmt::format("{} is '{}': expected a number from {} to {}", origin, text, low, high));
}

// The parts between separators, empty ones too: always one more than there are separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace skein::launch
