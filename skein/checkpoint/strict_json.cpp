// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "skein/core/error.h"

namespace skein::checkpoint {
namespace {

using Json = nlohmann::json;
constexpr int kMaxDepth = 8;

}  // namespace

Json parse_strict_json(std::string_view text, std::string_view file) {
  if (text.find('\0') != std::string_view::npos) {
    throw IoError(fmt::format("{}: a zero byte in the text", file));
  }
  std::vector<std::set<std::string>> keys;  // of each open object
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxDepth) {
      throw IoError(fmt::format("{}: more than {} levels of JSON", file, kMaxDepth));
    }
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw IoError(fmt::format("{}: duplicate key '{}'", file, parsed.get<std::string>()));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    throw IoError(fmt::format("{}: not JSON: {}", file, error.what()));
  }
}

}  // namespace skein::checkpoint
