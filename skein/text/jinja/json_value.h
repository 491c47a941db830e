// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does JSON become a value, and a value JSON?

#include <optional>
#include <string>
#include <string_view>

#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// Keys keep their order. Throws JsonError; JSON inside JSON counts from level 1 again.
Value value_of_json(std::string_view json);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Python's json.dumps(). Throws Failure for what JSON does not have.
std::string json_of_value(const Value& value, const JsonStyle& style = {});

}  // namespace skein::text::jinja
