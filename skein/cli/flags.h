// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// `--flag value`, `--flag=value` and switches of a command, dash or underscore.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/core/dtype.h"

namespace skein::cli {

// Names without dashes in front.
struct FlagNames {
  std::vector<std::string> values;
  std::vector<std::string> switches;
};

struct Flags {
  std::map<std::string, std::string> values;  // a switch that was given has an empty value
  std::vector<std::string> rest;              // words without a dash

  bool has(const std::string& name) const { return values.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise) const;
  // Throws UserError for what is not a whole number, 0 or more.
  int64_t number(const std::string& name, int64_t otherwise) const;
  // --dtype; none for `auto` and where it is not given. Throws UserError for what no model computes
  // in.
  std::optional<DType> dtype() const;
};

// A word of --dtype, as Flags::dtype() reads it.
std::optional<DType> parse_dtype(const std::string& word);

// Throws UserError, with suggestions, for a flag that is not in `names`.
Flags parse_flags(const std::string& command, std::span<const std::string> arguments,
                  const FlagNames& names);

}  // namespace skein::cli
