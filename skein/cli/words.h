// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What small commands share: flags without values, help.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skein::cli {

bool asks_for_help(std::span<const std::string> arguments);

// A command's words, sorted.
struct Words {
  std::vector<std::string> flags;  // those that were given, with dashes
  std::vector<std::string> rest;

  bool has(std::string_view flag) const;
};

// Throws UserError, with suggestions, for a word with a dash that is none of `flags`.
Words sort_words(std::string_view command, std::span<const std::string> arguments,
                 std::initializer_list<std::string_view> flags);

// For commands whose words are mostly configuration keys: throws UserError, with suggestions out of
// both, for a `--word` that is neither a key nor one of `flags`.
void check_flags(std::span<const std::string> arguments,
                 std::initializer_list<std::string_view> flags);

}  // namespace skein::cli
