// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do operators, subscripts and attributes give?

#include <optional>
#include <string>
#include <vector>

#include "skein/text/jinja/meter.h"
#include "skein/text/jinja/syntax.h"
#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// a op b, Python's. Throws Failure for types that have none.
Value binary(Operator op, const Value& a, const Value& b, Meter& meter);
bool compare(Operator op, const Value& a, const Value& b, Meter& meter);
bool contains(const Value& container, const Value& item, Meter& meter);
Value negative(const Value& value);

// value[key], value.name: undefined when there is no such thing, as jinja2 has it. `name` is
// remembered by what is undefined and must live as long as the template.
Value item_of(const Value& value, const Value& key, Meter& meter);
Value attribute_of(const Value& value, const std::string& name);
// "message.content", "0.name": for the filters that take a path.
Value at_path(const Value& value, const std::string& path, Meter& meter);

struct SliceBounds {
  std::optional<int64_t> begin, end, step;
};
Value slice_of(const Value& value, const SliceBounds& bounds, Meter& meter);

// What {{ value }} prints.
std::string text_of(const Value& value, Meter& meter);

// What a loop runs over: the items of a list, the keys of a dictionary, the characters of a string.
std::vector<Value> items_of(const Value& value, Meter& meter);
int64_t length_of(const Value& value, Meter& meter);

}  // namespace skein::text::jinja
