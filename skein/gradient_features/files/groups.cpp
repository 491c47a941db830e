// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/groups.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/json.h"
#include "skein/gradient_features/files/line_index.h"

namespace skein::gradient_features {
namespace {

constexpr std::string_view kSpace = " \t\r";
constexpr JsonLimits kLimits{.bytes = uint64_t{64} << 20};

std::string trimmed(const std::string& line) {
  const auto begin = line.find_first_not_of(kSpace);
  return line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

std::string group_in(const std::string& line, const std::string& place, const std::string& key) {
  const auto row = parse_json<UserError>(line, place, kLimits);
  const auto value = row.is_object() ? row.find(key) : row.end();
  if (!row.is_object() || value == row.end() || value->is_structured() || value->is_null()) {
    throw UserError(fmt::format("{}: the row has no '{}' that could name its group", place, key));
  }
  return value->is_string() ? value->get<std::string>() : value->dump();
}

}  // namespace

std::vector<std::string> groups_of_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw UserError(fmt::format("--groups {} is no file with a name for each validation sample",
                                shown(path.string())));
  }
  const LineIndex lines(path);
  if (lines.count() == 0) {
    throw UserError(fmt::format(
        "--groups {} names no group: give a line for each validation sample, or leave --groups out",
        shown(path.string())));
  }
  std::vector<std::string> groups;
  for (int64_t i = 0; i < lines.count(); ++i) groups.push_back(trimmed(lines.read(i)));
  return groups;
}

std::vector<std::string> groups_by_key(const fs::path& rows, const std::string& key) {
  const LineIndex lines(rows);
  lines.require_lines();
  std::vector<std::string> groups;
  for (int64_t i = 0; i < lines.count(); ++i) {
    const auto place = fmt::format("{}:{}", rows.string(), lines.number(i));
    groups.push_back(group_in(lines.read(i), place, key));
  }
  return groups;
}

}  // namespace skein::gradient_features
