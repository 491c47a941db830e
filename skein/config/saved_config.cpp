// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/saved_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace skein::config {
namespace {

using Pair = std::pair<std::string, std::string>;

// "key: value"; none where the line is not so.
std::optional<Pair> pair_of(std::string_view line) {
  const auto colon = line.find(": ");
  const auto key = line.substr(0, colon);
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  if (colon == std::string_view::npos || key.empty() ||
      key.find_first_not_of(kLetters) != std::string_view::npos) {
    return std::nullopt;
  }
  const auto value = line.substr(colon + 2);
  const bool has_comment = !value.starts_with('"') && value.find(" #") != std::string_view::npos;
  if (has_comment) return std::nullopt;
  return Pair(key, value);
}

// None where a line is not "key: value".
std::optional<std::vector<Pair>> pairs_of(std::string_view yaml) {
  std::vector<Pair> pairs;
  while (!yaml.empty()) {
    const auto end = std::min(yaml.find('\n'), yaml.size());
    auto pair = pair_of(yaml.substr(0, end));
    if (!pair) return std::nullopt;
    pairs.push_back(std::move(*pair));
    yaml.remove_prefix(std::min(end + 1, yaml.size()));
  }
  return pairs;
}

}  // namespace

bool is_saved_config(std::string_view yaml) {
  // Every version has begun with these.
  constexpr std::string_view kFirstKeys[] = {"stage", "seed", "data_seed", "full_determinism"};
  const auto pairs = pairs_of(yaml);
  return pairs && pairs->size() >= std::size(kFirstKeys) &&
         std::equal(std::begin(kFirstKeys), std::end(kFirstKeys), pairs->begin(),
                    [](const auto& key, const auto& pair) { return pair.first == key; });
}

std::vector<std::string> changed_keys(std::string_view saved, const Resolved& now) {
  std::vector<std::string> changes;
  const auto before = pairs_of(saved), after = pairs_of(to_yaml(now));
  if (!before || !after) return changes;
  for (const auto& [key, value] : *after) {
    const auto old = std::ranges::find(*before, key, &Pair::first);
    if (old == before->end() || old->second == value) continue;
    changes.push_back(fmt::format("{}: {} → {}", key, old->second, value));
  }
  return changes;
}

}  // namespace skein::config
