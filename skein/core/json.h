// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is JSON that others wrote read? One parser, with limits.
//
// Texts are UTF-8. A text is refused when it has more bytes or levels than the limits allow, holds
// a zero byte, or, where a tree is built, names a key of an object twice. Objects of a file are
// read key by key with a JsonObject, whose messages name the file and the key.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "skein/core/file.h"

namespace skein {

struct JsonLimits {
  uint64_t bytes = uint64_t{16} << 20;
  int depth = 64;              // objects and lists inside each other
  bool whole_numbers = false;  // refuses any other: where all numbers are counts
};

// Of messages between processes. The library would convert a float that fits no integer without a
// word, to no defined value.
inline constexpr JsonLimits kMessageLimits{
    .bytes = uint64_t{1} << 20, .depth = 8, .whole_numbers = true};

// Why a text was refused: what() is the reason alone, since only the caller knows what the text is.
struct JsonError : std::runtime_error {
  JsonError(const std::string& reason, size_t byte) : std::runtime_error(reason), byte(byte) {}

  size_t byte;  // from 1; 0: no single place is wrong
};

// "FILE:LINE:COLUMN: reason", or "FILE: reason".
std::string json_message(const JsonError& error, std::string_view text, std::string_view file);

struct TextPlace {
  int line = 1;
  int column = 1;
};

// Of the byte that is counted from 1.
TextPlace place_of(std::string_view text, size_t byte);

// Throws JsonError.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits = {});

// The same with keys in the text's order, of which an object has at most 10,000: they are searched
// one by one.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonLimits& limits = {});

// None where the text is refused: for what is passed over then.
std::optional<nlohmann::json> json_if_valid(std::string_view text, const JsonLimits& limits = {});
std::optional<nlohmann::ordered_json> ordered_json_if_valid(std::string_view text,
                                                            const JsonLimits& limits = {});

// Throws an Error that begins with `file`.
template <typename Error>
nlohmann::json parse_json(std::string_view text, std::string_view file,
                          const JsonLimits& limits = {}) try {
  return parse_json(text, limits);
} catch (const JsonError& error) {
  throw Error(json_message(error, text, file));
}

// None but of a whole number that fits: the library would convert any other, and wrap large ones.
template <typename Json>
std::optional<int64_t> whole_number(const Json& value) {
  const bool fits = !value.is_number_unsigned() || value.template get<uint64_t>() <= INT64_MAX;
  if (!value.is_number_integer() || !fits) return std::nullopt;
  return value.template get<int64_t>();
}

// What a text consists of, told in order. Each call answers whether to go on.
struct JsonEvents : nlohmann::json_sax<nlohmann::json> {
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }  // negative
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) final { return false; }  // JSON has none
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  // walk_json() throws instead.
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) final {
    return false;
  }
};

// The same without a tree, which could be many times as large as its text: for large texts of which
// little is wanted, and to judge a text. Returns whether the end was reached. Throws JsonError.
bool walk_json(std::string_view text, const JsonLimits& limits, JsonEvents& events);

// One object of a file that the user gave. Absent and null both mean the default. Every refusal is
// a UserError that begins with the file's name, and with the key under which the object was found.
class JsonObject {
 public:
  static JsonObject parse(std::string_view text, const std::string& file,
                          const JsonLimits& limits = {});
  static JsonObject read(const fs::path& path, const JsonLimits& limits = {});

  // Null when the key is absent or null.
  const nlohmann::json* find(const char* key) const;
  // Is it there, and null? For keys whose null says something else than their absence.
  bool is_null(const char* key) const;
  std::optional<JsonObject> object(const char* key) const;

  // Leave `value` alone when the key is absent. Numbers are not rounded to integers.
  void read(const char* key, int64_t& value) const;
  void read(const char* key, double& value) const;
  void read(const char* key, bool& value) const;
  void read(const char* key, std::string& value) const;
  template <typename T>
  void read(const char* key, std::optional<T>& value) const {
    if (find(key)) read(key, value.emplace());
  }

  [[noreturn]] void refuse(const std::string& why) const;
  // "KEY is VALUE, expected …".
  [[noreturn]] void refuse_value(const char* key, const std::string& expected) const;

 private:
  JsonObject(nlohmann::json object, std::string place);

  nlohmann::json object_;
  std::string place_;  // begins messages
};

}  // namespace skein
