// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/config_reader.h"

#include <fmt/format.h>

#include <utility>

namespace skein::plan {

std::optional<ConfigReader> ConfigReader::object(const char* key) const {
  auto inner = object_.object(key);
  return inner ? std::optional<ConfigReader>(std::move(*inner)) : std::nullopt;
}

void ConfigReader::read(const char* key, int64_t& value, int64_t largest) const {
  object_.read(key, value);
  if (has(key) && (value < 1 || value > largest)) {
    object_.refuse_value(key, fmt::format("between 1 and {}", largest));
  }
}

void ConfigReader::read_probability(const char* key, double& value) const {
  object_.read(key, value);
  if (!(value >= 0 && value < 1)) object_.refuse_value(key, "at least 0 and below 1");
}

void ConfigReader::read_positive(const char* key, double& value) const {
  object_.read(key, value);
  if (!(value > 0 && value < 1e30)) object_.refuse_value(key, "positive and below 1e30");
}

void ConfigReader::read_or_none(const char* key, std::optional<int64_t>& value) const {
  if (object_.is_null(key)) value.reset();
  if (has(key)) read(key, value.emplace());
}

void ConfigReader::read_or_none(const char* key, std::optional<double>& value) const {
  if (object_.is_null(key)) value.reset();
  if (has(key)) read_positive(key, value.emplace(1));
}

void ConfigReader::read(const char* key, std::vector<std::string>& values) const {
  const auto* list = object_.find(key);
  if (!list) return;
  if (!list->is_array()) object_.refuse_value(key, "a list of names");
  values.clear();
  for (const auto& entry : *list) {
    if (!entry.is_string()) object_.refuse_value(key, "a list of names");
    values.push_back(entry.get<std::string>());
  }
}

void ConfigReader::read_positive(const char* key, std::vector<double>& values) const {
  const auto* list = object_.find(key);
  if (!list) return;
  if (!list->is_array()) object_.refuse_value(key, "a list of numbers");
  values.clear();
  for (const auto& entry : *list) {
    if (!entry.is_number() || !(entry.get<double>() > 0)) {
      object_.refuse_value(key, "a list of positive numbers");
    }
    values.push_back(entry.get<double>());
  }
}

void ConfigReader::require_divisible(int64_t value, int64_t divisor, const char* what) const {
  if (value % divisor != 0) {
    fail(fmt::format("{}: {} is not a multiple of {}", what, value, divisor));
  }
}

}  // namespace skein::plan
