// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/key_rule.h"

#include <algorithm>
#include <string>

#include "skein/config/syntax/values.h"

namespace skein::config {

bool KeyRule::matches(std::string_view other) const {
  if (!key.ends_with('*')) return key == other;
  return other.starts_with(key.substr(0, key.size() - 1));
}

bool KeyRule::is_off(const Node& value) const {
  const auto word = lower(value.shown());
  const auto as_bool = parse_bool(word);
  const auto number = parse_real(word);
  return std::ranges::any_of(off, [&](std::string_view text) {
    const std::string one(text);
    return word == one || (as_bool && as_bool == parse_bool(one)) ||
           (number && number == parse_real(one));
  });
}

}  // namespace skein::config
