// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skein/config/fields.h"
#include "skein/config/run_config.h"
#include "skein/config/syntax/values.h"

namespace skein::config {

std::vector<KeyHelp> key_help() {
  std::vector<KeyHelp> keys;
  RunConfig defaults;
  fields(defaults, [&](const std::string& name, auto& member, const About& about) {
    keys.push_back({name, to_text(member), fmt::format("{}", fmt::join(about.aliases, ", ")),
                    std::string(about.help)});
  });
  return keys;
}

std::string key_list() {
  std::string text;
  for (const auto& key : key_help()) {
    const auto also = key.aliases.empty() ? "" : fmt::format(" (also {})", key.aliases);
    text += fmt::format("  {}: {}\n      {}{}\n", key.name, key.value, key.help, also);
  }
  return text;
}

}  // namespace skein::config
