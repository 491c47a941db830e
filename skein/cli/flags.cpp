// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::string Flags::text(const std::string& name, const std::string& otherwise) const {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

int64_t Flags::number(const std::string& name, int64_t otherwise) const {
  if (!has(name)) return otherwise;
  const auto& text = values.at(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UserError(fmt::format("--{} takes a whole number, not '{}'", name, text));
  }
  return value;
}

std::optional<DType> Flags::dtype() const { return parse_dtype(text("dtype", "auto")); }

std::optional<DType> parse_dtype(const std::string& word) {
  if (word == "auto") return std::nullopt;
  for (const auto dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    if (word == dtype_word(dtype)) return dtype;
  }
  throw UserError(fmt::format("--dtype takes auto, float32, bfloat16 or float64, not '{}'", word));
}

Flags parse_flags(const std::string& command, std::span<const std::string> arguments,
                  const FlagNames& names) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& word = arguments[i];
    if (!word.starts_with("--")) {
      flags.rest.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    auto name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::ranges::replace(name, '_', '-');
    if (contains(names.switches, name)) {
      flags.values[name] = "";
    } else if (!contains(names.values, name)) {
      auto known = names.values;
      known.insert(known.end(), names.switches.begin(), names.switches.end());
      throw UserError(
          fmt::format("{} has no flag --{}{}", command, name, config::did_you_mean(name, known)));
    } else if (equals != std::string::npos) {
      flags.values[name] = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      flags.values[name] = arguments[++i];
    } else {
      throw UserError(fmt::format("--{} needs a value", name));
    }
  }
  return flags;
}

}  // namespace skein::cli
