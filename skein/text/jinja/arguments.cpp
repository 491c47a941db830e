// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/arguments.h"

#include <algorithm>

namespace skein::text::jinja {

std::optional<Value> Arguments::find(std::string_view name) {
  if (at_ < values_.size()) return values_[at_++];
  const auto found = std::ranges::find(named_, name, &std::pair<std::string, Value>::first);
  if (found == named_.end()) return std::nullopt;
  auto value = std::move(found->second);
  named_.erase(found);
  return value;
}

void Arguments::fail(std::string_view name, std::string_view expected, const Value& got) const {
  throw Failure(fmt::format("{}: {} is {}, expected {}", what_, name, got.type(), expected));
}

std::string Arguments::string(std::string_view name) {
  const auto value = take(name);
  if (!value.string()) fail(name, "a string", value);
  return *value.string();
}

int64_t Arguments::integer(std::string_view name, int64_t otherwise) {
  const auto value = take(name);
  if (value.is_undefined()) return otherwise;
  if (!value.integer()) fail(name, "an integer", value);
  return *value.integer();
}

std::vector<Value> Arguments::rest() {
  std::vector<Value> values(values_.begin() + static_cast<ptrdiff_t>(at_), values_.end());
  at_ = values_.size();
  return values;
}

void Arguments::finish() const {
  if (at_ < values_.size()) throw Failure(fmt::format("{}: too many arguments", what_));
  if (!named_.empty()) {
    throw Failure(fmt::format("{}: the argument '{}' is unknown", what_, named_[0].first));
  }
}

}  // namespace skein::text::jinja
