// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What commands share: help, and words that are neither keys nor flags.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skein::cli {

bool asks_for_help(std::span<const std::string> arguments);

// For commands whose words are mostly configuration keys: throws UserError, with suggestions out of
// both, for a `--word` that is neither a key nor one of `flags`.
void check_flags(std::span<const std::string> arguments,
                 std::initializer_list<std::string_view> flags);

}  // namespace skein::cli
