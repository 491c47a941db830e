// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/words.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/config/compat/known_keys.h"
#include "skein/config/compat/translated_keys.h"
#include "skein/config/field_index.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

std::string underscored(std::string text) {
  std::ranges::replace(text, '-', '_');
  return text;
}

// Suggestions are spelt with the dashes or underscores of the word that was typed.
std::string as_flag(std::string name, bool with_dashes) {
  if (with_dashes) std::ranges::replace(name, '_', '-');
  return "--" + name;
}

}  // namespace

bool asks_for_help(std::span<const std::string> arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

void check_flags(std::span<const std::string> arguments,
                 std::initializer_list<std::string_view> flags) {
  const auto& keys = config::field_index().canonical;
  for (const auto& word : arguments) {
    if (!word.starts_with("--")) continue;
    const auto key = underscored(word.substr(2, word.find('=') - 2));
    const bool is_key = keys.contains(key) || config::is_translated_key(key) ||
                        config::find_known_key(key) != nullptr || key == "config" ||
                        key.starts_with("training.");
    if (is_key) continue;
    std::vector<std::string> names;
    for (const auto& flag : flags) names.push_back(underscored(std::string(flag)));
    if (std::ranges::count(names, key) > 0) continue;
    for (const auto& name : config::translated_keys()) names.push_back(name);
    for (const auto& [spelling, name] : keys) names.push_back(spelling);
    const bool with_dashes = word.find('_') == std::string::npos;
    for (auto& name : names) name = as_flag(name, with_dashes);
    throw UserError(fmt::format("command line: '{}' is no key and no flag{}", word,
                                config::did_you_mean(as_flag(key, with_dashes), names)));
  }
}

}  // namespace skein::cli
