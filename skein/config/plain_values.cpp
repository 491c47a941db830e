// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/plain_values.h"

#include <optional>
#include <type_traits>

#include "skein/config/fields.h"
#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

PlainValue value_of(bool value) { return value; }
PlainValue value_of(int64_t value) { return static_cast<double>(value); }
PlainValue value_of(double value) { return value; }
PlainValue value_of(const std::string& value) { return value; }
PlainValue value_of(const std::vector<std::string>& value) { return to_text(value); }
PlainValue value_of(const std::vector<double>& value) { return to_text(value); }
PlainValue value_of(const NumberMap& value) { return to_text(value); }
template <typename Choice>
  requires IsChoice<Choice> || IsOpenChoice<Choice>
PlainValue value_of(const Choice& value) {
  return to_text(value);
}
template <IsChoice Choice>
PlainValue value_of(const std::vector<Choice>& value) {
  return to_text(value);
}

}  // namespace

std::vector<std::pair<std::string, PlainValue>> plain_values(const RunConfig& config) {
  std::vector<std::pair<std::string, PlainValue>> values;
  auto copy = config;  // fields() wants one that it may change
  fields(copy, [&](const std::string& name, const auto& member, const About& about) {
    if (!about.saved) return;
    // Numbers beside words under one name are more than TensorBoard can sort: absent is left out.
    using Member = std::decay_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::optional<int64_t>> ||
                  std::is_same_v<Member, std::optional<double>>) {
      if (member) values.emplace_back(name, value_of(*member));
    } else {
      values.emplace_back(name, value_of(member));
    }
  });
  return values;
}

}  // namespace skein::config
