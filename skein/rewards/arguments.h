// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What stands behind the colon of a reward's name: `overlong:512,128`, `accuracy:column=solution`.
//
// Arguments are separated by commas; one without a key belongs to the first parameter that has no
// value yet. There are no quotes: a value holds no comma.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::rewards {

class Arguments {
 public:
  // `parameters` are those that the reward knows, in order. `spec` is the whole of it, for
  // messages. Throws UserError for one that is unknown, given twice or empty.
  Arguments(std::string spec, std::string_view text, const std::vector<std::string>& parameters);

  std::optional<std::string> text(const std::string& parameter) const;
  // Throw UserError when it is no whole number from 0 to 2^53, or missing.
  std::optional<int64_t> count(const std::string& parameter) const;
  int64_t required_count(const std::string& parameter) const;

  // "the reward 'SPEC': WHY".
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  void add(std::string_view part, const std::vector<std::string>& parameters);

  std::string spec_;
  std::map<std::string, std::string> values_;
};

}  // namespace skein::rewards
