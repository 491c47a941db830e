// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/handover.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "skein/config/fields.h"
#include "skein/core/error.h"

namespace skein::config {
namespace {

using Json = nlohmann::json;

template <typename T>
Json pack(const T& member) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int64_t>(member);
  } else {
    return member;
  }
}
template <typename T>
Json pack(const std::optional<T>& member) {
  return member ? pack(*member) : Json();
}

template <typename T>
void unpack(const Json& json, T& member) {
  if constexpr (std::is_enum_v<T>) {
    member = static_cast<T>(json.get<int64_t>());
  } else {
    json.get_to(member);
  }
}
template <typename T>
void unpack(const Json& json, std::optional<T>& member) {
  member.reset();
  if (!json.is_null()) unpack(json, member.emplace());
}

Json pack(const Origin& origin) {
  return {static_cast<int>(origin.kind), origin.file, origin.line, origin.column, origin.spelling};
}

Origin origin_from(const Json& json) {
  return {.kind = static_cast<Origin::Kind>(json.at(0).get<int>()),
          .file = json.at(1),
          .line = json.at(2),
          .column = json.at(3),
          .spelling = json.at(4)};
}

}  // namespace

std::string encode(const Resolved& resolved) {
  Json values = Json::object();
  auto config = resolved.config;
  fields(config, [&](const std::string& name, const auto& member, const About&) {
    values[name] = pack(member);
  });
  Json origins = Json::object();
  for (const auto& [key, origin] : resolved.origins) origins[key] = pack(origin);
  // Not as text: a path may hold any bytes, and JSON's are UTF-8.
  std::string bytes;
  Json::to_msgpack({{"values", values}, {"origins", origins}}, bytes);
  return bytes;
}

Resolved decode_resolved(const std::string& bytes) try {
  const auto json = Json::from_msgpack(bytes);
  Resolved resolved;
  fields(resolved.config, [&](const std::string& name, auto& member, const About&) {
    unpack(json.at("values").at(name), member);
  });
  for (const auto& [key, origin] : json.at("origins").items()) {
    resolved.origins[key] = origin_from(origin);
  }
  return resolved;
} catch (const Json::exception& error) {
  throw UserError(fmt::format(
      "the configuration that the launcher handed over cannot be read: {} (do skein and "
      "skein-worker belong to one build?)",
      error.what()));
}

}  // namespace skein::config
