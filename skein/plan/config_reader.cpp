// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/config_reader.h"

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
  if (!(value > 0 && value < 1e30)) object_.refuse_value(key, "positive");
}

void ConfigReader::require_divisible(int64_t value, int64_t divisor, const char* what) const {
  if (value % divisor != 0) {
    fail(fmt::format("{}: {} is not a multiple of {}", what, value, divisor));
  }
}

}  // namespace skein::plan
