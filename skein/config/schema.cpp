// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/schema.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "skein/config/compat/known_keys.h"
#include "skein/config/compat/translated_keys.h"
#include "skein/config/fields.h"
#include "skein/config/run_config.h"
#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

using Json = nlohmann::ordered_json;

// YAML readers disagree on 1e-4 (some take it for text) and know no 5% or 25MiB.
constexpr const char* kNumberText = R"(^[-+]?[0-9_.]+([eE][-+]?[0-9]+)?%?$)";
constexpr const char* kWholeText = R"(^[-+]?[0-9_.]+([eE][-+]?[0-9]+)?( ?([kKmMgGtT][iI]?[bB]))?$)";

void add_range(Json& number, const About& about) {
  if (std::isfinite(about.min)) {
    number[about.min_is_allowed ? "minimum" : "exclusiveMinimum"] = about.min;
  }
  if (std::isfinite(about.max)) {
    number[about.max_is_allowed ? "maximum" : "exclusiveMaximum"] = about.max;
  }
}

Json number_schema(const About& about, const char* type, const char* pattern) {
  Json number = {{"type", type}};
  add_range(number, about);
  return {{"anyOf", {number, {{"type", "string"}, {"pattern", pattern}}}}};
}

Json value_schema(const std::string&, const About& about) {
  if (!about.choices.empty()) return {{"enum", about.choices}};
  Json types = {"string", "number", "boolean", "null"};
  if (about.takes_list) types.push_back("array");
  return {{"type", types}};
}
Json value_schema(bool, const About&) {
  return {{"enum", {true, false, "true", "false", "yes", "no", "on", "off", 1, 0}}};
}
Json value_schema(int64_t, const About& about) {
  return number_schema(about, "integer", kWholeText);
}
Json value_schema(double, const About& about) {
  return number_schema(about, "number", kNumberText);
}
Json value_schema(const std::optional<int64_t>&, const About& about) {
  auto schema = value_schema(int64_t{}, about);
  schema["anyOf"].push_back({{"enum", {nullptr, "none", "null"}}});
  return schema;
}
Json value_schema(const std::optional<double>&, const About& about) {
  auto schema = value_schema(double{}, about);
  schema["anyOf"].push_back({{"enum", {nullptr, "none", "null"}}});
  return schema;
}
Json value_schema(const std::vector<std::string>&, const About& about) {
  Json word = {{"type", "string"}};
  if (!about.is_verbatim && !about.is_command) {
    word = {{"enum", about.choices}};
    word["enum"].push_back("none");
    word["enum"].push_back("all");
  }
  return {
      {"anyOf", {{{"type", "array"}, {"items", word}}, {{"type", {"string", "boolean", "null"}}}}}};
}
Json value_schema(const NumberMap&, const About& about) {
  return {{"anyOf",
           {{{"type", "object"}, {"additionalProperties", value_schema(double{}, about)}},
            {{"type", {"string", "null"}}}}}};
}
template <IsChoice Choice>
Json value_schema(const Choice& value, const About&) {
  Json words = Json::array();
  for (const auto& word : spellings_of(value).known) {
    const std::string_view text = word.text;
    words.push_back(text);
    // As YAML reads them: `no` is false to an older reader.
    if (text == "no" || text == "false") words.push_back(false);
    if (text == "null") words.push_back(nullptr);
    if (const auto number = parse_real(std::string(text))) words.push_back(*number);
  }
  return {{"enum", words}};
}

template <IsOpenChoice Choice>
Json value_schema(const Choice&, const About& about) {
  auto schema = value_schema(typename Choice::value_type{}, about);
  schema["enum"].push_back(kAuto);
  schema["enum"].push_back(nullptr);
  return schema;
}

template <IsChoice Choice>
Json value_schema(const std::vector<Choice>&, const About& about) {
  return {{"anyOf",
           {{{"type", "array"}, {"items", value_schema(Choice(), about)}},
            {{"type", {"string", "boolean", "null"}}}}}};
}
Json value_schema(const std::vector<double>&, const About& about) {
  const auto number = value_schema(double{}, about);
  return {{"anyOf", {{{"type", "array"}, {"items", number}}, number, {{"type", "null"}}}}};
}

template <typename Member>
Json default_value(const Member& member) {
  if constexpr (IsChoice<Member> || IsOpenChoice<Member>) {
    return to_text(member);
  } else if constexpr (requires { words_of(member); }) {
    return words_of(member);
  } else if constexpr (std::is_same_v<Member, std::optional<int64_t>> ||
                       std::is_same_v<Member, std::optional<double>>) {
    return member ? Json(*member) : Json(nullptr);
  } else {
    return member;
  }
}

// `dataloader.batch_size` lies in the properties of `dataloader`.
void put(Json& properties, const std::string& key, Json schema) {
  const auto dot = key.find('.');
  if (dot == std::string::npos) {
    properties[key] = std::move(schema);
    return;
  }
  auto& section = properties[key.substr(0, dot)];
  if (!section.contains("properties")) {
    section = {{"type", {"object", "null"}},
               {"properties", Json::object()},
               {"additionalProperties", false}};
  }
  put(section["properties"], key.substr(dot + 1), std::move(schema));
}

void add_fields(Json& properties) {
  RunConfig defaults;
  fields(defaults, [&](const std::string& name, auto& member, const About& about) {
    Json schema = {{"description", about.help}};
    schema.update(value_schema(member, about));
    if (!about.also.empty() && schema.contains("enum")) {
      schema["enum"].push_back(about.also);
    } else if (!about.also.empty()) {
      schema["anyOf"].push_back({{"const", about.also}});
    }
    auto canonical = schema;
    canonical["default"] = default_value(member);
    put(properties, name, std::move(canonical));
    for (const auto& alias : about.aliases) {
      auto other = schema;
      other["description"] = fmt::format("{}: {}", name, about.help);
      other["deprecated"] = true;
      put(properties, std::string(alias), std::move(other));
    }
  });
}

void add_known_keys(Json& properties, Json& patterns) {
  for (const auto& rule : known_keys()) {
    const bool no_effect = rule.status == KeyRule::Status::kNoEffect;
    const Json schema = {
        {"description", fmt::format("{}{}{}", no_effect ? "no effect" : "not supported",
                                    rule.detail.empty() ? "" : ": ", rule.detail)},
        {"deprecated", true}};
    if (!rule.key.ends_with('*')) {
      put(properties, std::string(rule.key), schema);
    } else if (rule.key.find('.') == std::string_view::npos) {
      patterns[fmt::format("^{}", rule.key.substr(0, rule.key.size() - 1))] = schema;
    }
  }
}

}  // namespace

std::string json_schema() {
  Json properties = Json::object(), patterns = Json::object();
  properties["extends"] = {{"type", "string"},
                           {"description", "a file whose values hold where this one is silent"}};
  properties["training"] = {{"$ref", "#"}, {"description", "a key here is the same as outside"}};
  // First, so that a field or a translated key of the same section is added to it and not lost.
  add_known_keys(properties, patterns);
  for (const auto& name : translated_keys()) {
    if (name.find('.') == std::string::npos) properties[name] = Json::object();
  }
  properties["deepspeed"] = {{"type", {"string", "object", "boolean", "null"}},
                             {"description", "a DeepSpeed configuration: file or object"}};
  add_fields(properties);
  patterns["^x-"] = {{"description", "skipped: a place for anchors"}};
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "skein run configuration"},
                       {"type", {"object", "null"}},
                       {"properties", properties},
                       {"patternProperties", patterns},
                       {"additionalProperties", false}};
  return schema.dump(2) + "\n";
}

}  // namespace skein::config
