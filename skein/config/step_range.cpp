// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/step_range.h"

#include <fmt/format.h>

#include "skein/config/syntax/values.h"

namespace skein::config {

std::string StepRange::text() const {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

std::optional<StepRange> parse_step_range(const std::string& text) {
  const auto dash = text.find('-');
  const auto first = parse_integer(text.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_integer(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first) return std::nullopt;
  return StepRange{*first, *last};
}

}  // namespace skein::config
