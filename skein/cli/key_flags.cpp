// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/key_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "skein/config/field_index.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/launch/placement/launch_flags.h"

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

void check_flags(std::span<const std::string> arguments, const std::vector<std::string>& own) {
  std::vector<std::string> unknown;
  for (const auto& word : arguments) {
    if (!word.starts_with("--")) continue;
    const auto key = underscored(word.substr(2, word.find('=') - 2));
    if (config::is_key(key) || key == "config" || key.starts_with("training.")) continue;
    const bool with_dashes = word.find('_') == std::string::npos;
    std::vector<std::string> known;
    for (const auto& name : own) known.push_back(as_flag(underscored(name), with_dashes));
    for (const auto& name : config::key_spellings()) known.push_back(as_flag(name, with_dashes));
    for (const auto& flag : launch::flag_names()) {
      known.push_back(as_flag(underscored(flag.substr(2)), with_dashes));
    }
    unknown.push_back(fmt::format("command line: '{}' is no key and no flag{}", word,
                                  config::did_you_mean(as_flag(key, with_dashes), known)));
  }
  if (!unknown.empty()) throw UserError(fmt::format("{}", fmt::join(unknown, "\n  ")));
}

}  // namespace skein::cli
