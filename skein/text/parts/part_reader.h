// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does a part of a tokenizer read itself from tokenizer.json?
//
// The file comes from outside: whatever skein does not know exactly is refused by name, since a
// guess would give other ids than the model was trained with.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/text/parts/pattern.h"

namespace skein::text {

using Json = nlohmann::json;

// Reads one file; every refusal is a UserError that begins with its name.
class PartReader {
 public:
  explicit PartReader(std::string name) : name_(std::move(name)) {}

  Json parse(std::string_view text) const;
  [[noreturn]] void refuse(std::string_view reason) const;

  // Null where the key is absent.
  const Json& at(const Json& object, const char* key) const;
  bool flag(const Json& object, const char* key, bool otherwise) const;
  const std::string& text(const Json& object, const char* key) const;
  const Json& list(const Json& object, const char* key) const;
  uint32_t id(const Json& value) const;
  // From 0 to `most`.
  uint32_t count(const Json& object, const char* key, uint32_t most) const;
  // A string of one character.
  const std::string& character(const Json& object, const char* key) const;
  // {"String": literal} or {"Regex": pattern} under "pattern".
  Pattern pattern(const Json& part) const;
  // A pattern's own refusal does not know the file.
  Pattern pattern(const std::string& expression) const;

  // A part's "type", or an empty name for null.
  std::string type(const Json& part) const { return part.is_null() ? "" : text(part, "type"); }
  [[noreturn]] void refuse_type(std::string_view kind, std::string_view type,
                                std::string_view known) const;
  // The members of a Sequence under `key`, those of a Sequence inside too, or the part itself;
  // null: none.
  std::vector<Json> sequence(const Json& part, const char* key) const;

 private:
  std::string name_;
};

// A kind of part by the name that files give it.
template <typename Part>
struct PartKind {
  const char* name;
  std::unique_ptr<Part> (*read)(const PartReader& reader, const Json& json);
};

// The members of `json`, null or a part or a Sequence of them under `key`.
template <typename Part>
std::vector<std::unique_ptr<Part>> read_parts(
    const PartReader& reader, const Json& json, const char* key, const char* what,
    std::type_identity_t<std::span<const PartKind<Part>>> kinds) {
  std::vector<std::unique_ptr<Part>> parts;
  for (const auto& step : reader.sequence(json, key)) {
    const auto type = reader.type(step);
    std::string known;
    for (const auto& kind : kinds) {
      if (type == kind.name) {
        parts.push_back(kind.read(reader, step));
        break;
      }
      known += std::string(known.empty() ? "" : ", ") + kind.name;
      if (&kind == &kinds.back()) reader.refuse_type(what, type, known);
    }
  }
  return parts;
}

}  // namespace skein::text
