// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What would make rows of other columns rows that are known? Commands, for messages.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "skein/data/rows/row_columns.h"

namespace skein::data {

// What is to be called `to`: a column, or texts of several, one below the other.
struct Renaming {
  std::string to;
  std::vector<std::string> from;
};

// `jq -c '.to = .from | del(.from)' OLD.jsonl > NEW.jsonl` for all of them; what else a row has
// stays. Empty where a name is none that could be typed.
std::string renaming_command(const std::vector<Renaming>& renamings);
// The same for `del(.name)`.
std::string dropping_command(const std::vector<std::string>& names);

// The first of `names` that the row has; empty: none.
std::string first_of(const RowColumns& row, std::initializer_list<std::string_view> names);

// Columns of a row that seem to hold what was asked, in their order, three at most: those that are
// called so and hold text or a list, and others that hold messages or a long text or a question.
// What is said about a row (its id, source, category, scores) and what was answered is none of
// them. `row`: an object with all its columns.
std::vector<std::string> question_columns(const OrderedJson& row);

}  // namespace skein::data
