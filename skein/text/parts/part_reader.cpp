// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/part_reader.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

constexpr JsonLimits kLimits{.bytes = uint64_t{256} << 20, .depth = 16};
constexpr uint64_t kMaxId = 10'000'000;  // a table of ids is made: no file may ask for all of them
constexpr size_t kMaxSteps = 32;

}  // namespace

Json PartReader::parse(std::string_view text) const {
  auto json = parse_json<UserError>(text, name_, kLimits);
  if (!json.is_object()) refuse("expected an object");
  return json;
}

void PartReader::refuse(std::string_view reason) const {
  throw UserError(fmt::format("{}: {}", name_, reason));
}

const Json& PartReader::at(const Json& object, const char* key) const {
  static const Json kNull;
  if (!object.is_object()) refuse(fmt::format("expected an object that may hold '{}'", key));
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

bool PartReader::flag(const Json& object, const char* key, bool otherwise) const {
  const auto& value = at(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) refuse(fmt::format("'{}' must be true or false", key));
  return value.get<bool>();
}

const std::string& PartReader::text(const Json& object, const char* key) const {
  const auto& value = at(object, key);
  if (!value.is_string()) refuse(fmt::format("'{}' must be a string", key));
  return value.get_ref<const std::string&>();
}

const Json& PartReader::list(const Json& object, const char* key) const {
  const auto& value = at(object, key);
  if (!value.is_array()) refuse(fmt::format("'{}' must be a list", key));
  return value;
}

uint32_t PartReader::id(const Json& value) const {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxId) {
    refuse(fmt::format("a token id must be a number from 0 to {}", kMaxId));
  }
  return value.get<uint32_t>();
}

uint32_t PartReader::count(const Json& object, const char* key, uint32_t most) const {
  const auto& value = at(object, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most) {
    refuse(fmt::format("'{}' must be a number from 0 to {}", key, most));
  }
  return value.get<uint32_t>();
}

const std::string& PartReader::character(const Json& object, const char* key) const {
  const auto& value = text(object, key);
  if (value.empty() || first_character(value).size != value.size()) {
    refuse(fmt::format("'{}' must be one character", key));
  }
  return value;
}

Pattern PartReader::pattern(const Json& part) const {
  const auto& json = at(part, "pattern");
  if (json.is_object() && json.contains("Regex")) return pattern(text(json, "Regex"));
  const auto& literal = text(json, "String");
  if (literal.empty()) refuse("a pattern is empty");
  return Pattern::literal(literal);
}

Pattern PartReader::pattern(const std::string& expression) const {
  try {
    return Pattern(expression);
  } catch (const UserError& error) {
    refuse(error.what());
  }
}

void PartReader::refuse_type(std::string_view kind, std::string_view type,
                             std::string_view known) const {
  refuse(fmt::format("the {} '{}' is not one that skein knows ({})", kind,
                     type.empty() ? "null" : type.substr(0, 64), known));
}

std::vector<Json> PartReader::sequence(const Json& part, const char* key) const {
  if (part.is_null()) return {};
  if (type(part) != "Sequence") return {part};
  std::vector<Json> members;
  for (const auto& member : list(part, key)) {
    if (member.is_null()) refuse(fmt::format("'{}' holds null", key));
    for (auto& inner : sequence(member, key)) members.push_back(std::move(inner));
    if (members.size() > kMaxSteps) refuse(fmt::format("'{}' has too many steps", key));
  }
  return members;
}

}  // namespace skein::text
