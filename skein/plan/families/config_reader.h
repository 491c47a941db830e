// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// config.json, and how its numbers are bounded.
//
// Absent and null both mean the default, as in transformers, but where a key's null means "none".
// Throws UserError naming file, key, value and what was expected.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/core/json.h"

namespace skein::plan {

class ConfigReader {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 24;  // of a dimension: products stay below 2^63
  static constexpr int64_t kMaxLayers = 10000;           // each one is built

  explicit ConfigReader(JsonObject object) : object_(std::move(object)) {}

  bool has(const char* key) const { return object_.find(key) != nullptr; }
  bool is_null(const char* key) const { return object_.is_null(key); }
  // An object inside this one.
  std::optional<ConfigReader> object(const char* key) const;

  // Leave `value` alone where the key is absent. Integers are sizes: 1 to `largest`.
  void read(const char* key, int64_t& value, int64_t largest = kMaxSize) const;
  void read(const char* key, double& value) const { object_.read(key, value); }
  void read(const char* key, bool& value) const { object_.read(key, value); }
  void read(const char* key, std::string& value) const { object_.read(key, value); }
  void read_probability(const char* key, double& value) const;  // 0 to 1, 1 excluded
  void read_positive(const char* key, double& value) const;
  // Null takes the default away.
  void read_or_none(const char* key, std::optional<int64_t>& value) const;
  void read_or_none(const char* key, std::optional<double>& value) const;  // positive
  void read(const char* key, std::vector<std::string>& values) const;
  void read_positive(const char* key, std::vector<double>& values) const;

  void require_divisible(int64_t value, int64_t divisor, const char* what) const;
  [[noreturn]] void fail(const std::string& why) const { object_.refuse(why); }

 private:
  JsonObject object_;
};

}  // namespace skein::plan
