// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/rewards/bounded_regex.h"

namespace skein::rewards {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<std::string> kTypes = {"object",  "array",   "string", "number",
                                         "integer", "boolean", "null"};
const std::vector<std::string> kAnnotations = {"$schema",     "$id",     "$comment", "title",
                                               "description", "default", "examples", "format"};

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  // 1.0 is an integer to JSON Schema.
  return value.is_number_integer() ||
         (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

struct Counts {
  uint64_t min = 0, max = UINT64_MAX;
  bool hold(uint64_t count) const { return count >= min && count <= max; }
};

uint64_t num_characters(const std::string& text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

struct Schema::Node {
  Node(const Json& schema, const std::string& place);

  bool accepts(const Json& value) const;

  bool always = true;  // a schema that is `false` accepts nothing
  std::vector<std::string> types;
  std::optional<std::vector<Json>> values;
  std::map<std::string, std::unique_ptr<Node>> properties;
  std::vector<std::string> required;
  std::unique_ptr<Node> other_properties, items, none_of;
  Counts num_items, num_characters;
  double minimum = -kInfinity, maximum = kInfinity;
  double above = -kInfinity, below = kInfinity;
  std::optional<BoundedRegex> pattern;
  std::vector<Node> any_of, one_of, all_of;

 private:
  // Each answers whether the word is one of its own.
  bool read_values(const std::string& word, const Json& what, const std::string& place);
  bool read_object(const std::string& word, const Json& what, const std::string& place);
  bool read_limits(const std::string& word, const Json& what, const std::string& place);
  bool read_combined(const std::string& word, const Json& what, const std::string& place);

  bool accepts_object(const Json& value) const;
  bool accepts_scalar(const Json& value) const;
  bool accepts_combined(const Json& value) const;
};

namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw UserError(fmt::format("{}: {}", place, why));
}

const std::string& text_at(const Json& what, const std::string& place) {
  if (!what.is_string()) refuse(place, "expected a text");
  return what.get_ref<const std::string&>();
}

const Json::array_t& list_at(const Json& what, const std::string& place) {
  if (!what.is_array()) refuse(place, "expected a list");
  return what.get_ref<const Json::array_t&>();
}

uint64_t count_at(const Json& what, const std::string& place) {
  if (!what.is_number_unsigned()) refuse(place, "expected a whole number from 0");
  return what.get<uint64_t>();
}

double number_at(const Json& what, const std::string& place) {
  if (!what.is_number()) refuse(place, "expected a number");
  return what.get<double>();
}

std::string known_type(const Json& what, const std::string& place) {
  const auto& type = text_at(what, place);
  if (std::ranges::find(kTypes, type) == kTypes.end()) {
    refuse(place,
           fmt::format("unknown type '{}'{}", shown(type), config::did_you_mean(type, kTypes)));
  }
  return type;
}

}  // namespace

bool Schema::Node::read_values(const std::string& word, const Json& what,
                               const std::string& place) {
  if (word == "type" && what.is_array()) {
    for (const auto& type : what) types.push_back(known_type(type, place));
  } else if (word == "type") {
    types = {known_type(what, place)};
  } else if (word == "enum") {
    values = list_at(what, place);
  } else if (word == "const") {
    values = std::vector<Json>{what};
  } else if (word == "pattern") {
    pattern.emplace(text_at(what, place));
  } else {
    return false;
  }
  return true;
}

bool Schema::Node::read_object(const std::string& word, const Json& what,
                               const std::string& place) {
  if (word == "properties") {
    if (!what.is_object()) refuse(place, "expected an object");
    for (const auto& [name, schema] : what.items()) {
      properties[name] = std::make_unique<Node>(schema, fmt::format("{}.{}", place, shown(name)));
    }
  } else if (word == "required") {
    for (const auto& name : list_at(what, place)) required.push_back(text_at(name, place));
  } else if (word == "additionalProperties") {
    other_properties = std::make_unique<Node>(what, place);
  } else if (word == "items") {
    items = std::make_unique<Node>(what, place);
  } else {
    return false;
  }
  return true;
}

bool Schema::Node::read_limits(const std::string& word, const Json& what,
                               const std::string& place) {
  using Count = std::pair<std::string_view, uint64_t*>;
  for (const auto& [name, count] : {Count{"minItems", &num_items.min},
                                    {"maxItems", &num_items.max},
                                    {"minLength", &num_characters.min},
                                    {"maxLength", &num_characters.max}}) {
    if (word != name) continue;
    *count = count_at(what, place);
    return true;
  }
  using Limit = std::pair<std::string_view, double*>;
  for (const auto& [name, limit] : {Limit{"minimum", &minimum},
                                    {"maximum", &maximum},
                                    {"exclusiveMinimum", &above},
                                    {"exclusiveMaximum", &below}}) {
    if (word != name) continue;
    *limit = number_at(what, place);
    return true;
  }
  return false;
}

bool Schema::Node::read_combined(const std::string& word, const Json& what,
                                 const std::string& place) {
  if (word == "not") {
    none_of = std::make_unique<Node>(what, place);
    return true;
  }
  using Choice = std::pair<std::string_view, std::vector<Node>*>;
  for (const auto& [name, schemas] :
       {Choice{"anyOf", &any_of}, {"oneOf", &one_of}, {"allOf", &all_of}}) {
    if (word != name) continue;
    if (list_at(what, place).empty()) refuse(place, "an empty list");
    for (const auto& schema : what) schemas->emplace_back(schema, place);
    return true;
  }
  return false;
}

Schema::Node::Node(const Json& schema, const std::string& place) {
  if (schema.is_boolean()) {
    always = schema.get<bool>();
    return;
  }
  if (!schema.is_object()) refuse(place, "a schema is an object, true or false");
  for (const auto& [word, what] : schema.items()) {
    const auto inside = fmt::format("{}: {}", place, shown(word));
    const bool known = read_values(word, what, inside) || read_object(word, what, inside) ||
                       read_limits(word, what, inside) || read_combined(word, what, inside) ||
                       std::ranges::find(kAnnotations, word) != kAnnotations.end();
    if (!known) refuse(inside, "not among the words of JSON Schema that this reward knows");
  }
}

bool Schema::Node::accepts(const Json& value) const {
  if (!always) return false;
  const auto fits = [&](const std::string& type) { return is_of_type(value, type); };
  if (!types.empty() && std::ranges::none_of(types, fits)) return false;
  if (values && std::ranges::find(*values, value) == values->end()) return false;
  if (value.is_object() && !accepts_object(value)) return false;
  if (value.is_array()) {
    const auto fits_items = [&](const Json& item) { return items->accepts(item); };
    if (!num_items.hold(value.size())) return false;
    if (items && !std::ranges::all_of(value, fits_items)) return false;
  }
  return accepts_scalar(value) && accepts_combined(value);
}

bool Schema::Node::accepts_object(const Json& value) const {
  for (const auto& name : required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, entry] : value.items()) {
    const auto property = properties.find(name);
    const Node* node =
        property != properties.end() ? property->second.get() : other_properties.get();
    if (node != nullptr && !node->accepts(entry)) return false;
  }
  return true;
}

bool Schema::Node::accepts_scalar(const Json& value) const {
  if (value.is_number()) {
    const auto number = value.get<double>();
    return number >= minimum && number <= maximum && (number > above || above == -kInfinity) &&
           (number < below || below == kInfinity);
  }
  if (!value.is_string()) return true;
  const auto& text = value.get_ref<const std::string&>();
  // A pattern that gives up has not been found.
  return num_characters.hold(rewards::num_characters(text)) &&
         (!pattern || pattern->occurs_in(text).value_or(false));
}

bool Schema::Node::accepts_combined(const Json& value) const {
  const auto fits = [&](const Node& node) { return node.accepts(value); };
  return (any_of.empty() || std::ranges::any_of(any_of, fits)) &&
         (one_of.empty() || std::ranges::count_if(one_of, fits) == 1) &&
         std::ranges::all_of(all_of, fits) && !(none_of && none_of->accepts(value));
}

Schema::Schema(const Json& schema, const std::string& place)
    : root_(std::make_unique<Node>(schema, place)) {}

Schema::Schema(Schema&&) noexcept = default;
Schema& Schema::operator=(Schema&&) noexcept = default;
Schema::~Schema() = default;

bool Schema::accepts(const Json& value) const { return root_->accepts(value); }

}  // namespace skein::rewards
