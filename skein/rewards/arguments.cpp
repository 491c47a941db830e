// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::rewards {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 53;

}  // namespace

Arguments::Arguments(std::string spec, std::string_view text,
                     const std::vector<std::string>& parameters)
    : spec_(std::move(spec)) {
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    add(text.substr(0, comma), parameters);
    if (comma + 1 == text.size()) refuse("nothing behind the last comma");
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

void Arguments::add(std::string_view part, const std::vector<std::string>& parameters) {
  const auto equals = part.find('=');
  std::string key, value;
  if (equals == std::string_view::npos) {
    const auto free = std::ranges::find_if(
        parameters, [&](const auto& parameter) { return !values_.contains(parameter); });
    if (free == parameters.end()) refuse(fmt::format("it takes no argument '{}'", part));
    key = *free;
    value = part;
  } else {
    key = part.substr(0, equals);
    value = part.substr(equals + 1);
    if (std::ranges::find(parameters, key) == parameters.end()) {
      const auto near = config::did_you_mean(key, parameters);
      refuse(fmt::format(
          "unknown argument '{}'{}", key,
          near.empty() ? fmt::format("; it takes: {}", fmt::join(parameters, ", ")) : near));
    }
  }
  if (value.empty()) refuse(fmt::format("'{}' has no value", key));
  if (!values_.emplace(key, value).second) refuse(fmt::format("'{}' is given twice", key));
}

std::optional<std::string> Arguments::text(const std::string& parameter) const {
  const auto found = values_.find(parameter);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int64_t> Arguments::count(const std::string& parameter) const {
  const auto given = text(parameter);
  if (!given) return std::nullopt;
  int64_t value = 0;
  const auto* end = given->data() + given->size();
  const auto [stop, error] = std::from_chars(given->data(), end, value);
  if (error != std::errc{} || stop != end || value < 0 || value > kMaxCount) {
    refuse(fmt::format("{} is '{}', expected a whole number from 0", parameter, *given));
  }
  return value;
}

int64_t Arguments::required_count(const std::string& parameter) const {
  const auto value = count(parameter);
  if (!value) refuse(fmt::format("{} is missing", parameter));
  return *value;
}

void Arguments::refuse(const std::string& why) const {
  throw UserError(fmt::format("the reward '{}': {}", spec_, why));
}

}  // namespace skein::rewards
