// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/row.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/json.h"

namespace skein::rewards {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kRowLimits{.bytes = uint64_t{64} << 20, .depth = 64};  // those of data files

const Json* find_key(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto entry = object.find(std::string(key));
  return entry == object.end() || entry->is_null() ? nullptr : &*entry;
}

}  // namespace

const Json& RowReader::columns(const Completion& completion) {
  if (is_read_ && text_ == completion.row) return columns_;
  is_read_ = false;
  const auto place = fmt::format("the row of {}", place_of(completion));
  columns_ = completion.row.empty() ? Json::object()
                                    : parse_json<UserError>(completion.row, place, kRowLimits);
  if (!columns_.is_object()) throw UserError(fmt::format("{}: not a JSON object", place));
  text_ = completion.row;
  is_read_ = true;
  return columns_;
}

const Json* find_column(const Json& columns, std::string_view name) {
  if (const auto* column = find_key(columns, name)) return column;
  const Json* place = &columns;
  while (place != nullptr && !name.empty()) {
    const auto dot = std::min(name.find('.'), name.size());
    place = find_key(*place, name.substr(0, dot));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return place == &columns ? nullptr : place;
}

const Json* find_column(const Json& columns, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (const auto* column = find_column(columns, name)) return column;
  }
  return nullptr;
}

std::optional<std::string> text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return std::nullopt;
}

}  // namespace skein::rewards
