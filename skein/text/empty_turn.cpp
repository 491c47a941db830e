// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/empty_turn.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/text/turn_end.h"

namespace skein::text {
namespace {

using nlohmann::json;

// Names that every template prints as they are.
bool is_plain(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
  });
}

std::vector<std::string> called_functions(const Message& turn) {
  std::vector<std::string> names;
  if (turn.extra_json.find("tool_calls") == std::string::npos) return names;
  const auto extra = parse_json<UserError>(turn.extra_json, "a message");
  if (!extra.is_object() || !extra.contains("tool_calls")) return names;
  for (const auto& call : extra["tool_calls"]) {
    const bool is_wrapped = call.is_object() && call.contains("function");
    const json& function = is_wrapped ? call["function"] : call;
    if (!function.is_object() || !function.contains("name")) continue;
    const auto& name = function["name"];
    if (name.is_string() && is_plain(name)) names.push_back(name);
  }
  return names;
}

}  // namespace

bool is_empty_turn(const Message& turn, std::string_view printed,
                   const std::set<std::string, std::less<>>& empty) {
  if (turn.extra_json.empty() && without_blanks(turn.content).empty()) return true;
  if (empty.contains(without_blanks(printed))) return true;
  return std::ranges::any_of(called_functions(turn), [&](const std::string& name) {
    return printed.find(name) == std::string_view::npos;
  });
}

}  // namespace skein::text
