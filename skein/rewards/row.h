// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does the row of a prompt say, beside the prompt?

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/rewards/reward.h"

namespace skein::rewards {

// Completions of one prompt share a row, and stand side by side: it is parsed once.
class RowReader {
 public:
  // The columns of its row, until the next call. Throws UserError when it is no JSON object; no row
  // at all is one without columns.
  const nlohmann::json& columns(const Completion& completion);

 private:
  bool is_read_ = false;
  std::string text_;
  nlohmann::json columns_;
};

// A column, or, where none has that name, one of an object: `reward_model.ground_truth`. Null where
// there is none, and where its value is null.
const nlohmann::json* find_column(const nlohmann::json& columns, std::string_view name);

// The first of `names` that there is.
const nlohmann::json* find_column(const nlohmann::json& columns,
                                  const std::vector<std::string>& names);

// A text as it is, a number or truth value as JSON writes it.
std::optional<std::string> text_of(const nlohmann::json& value);

}  // namespace skein::rewards
