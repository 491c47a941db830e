// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which patterns are matched by hand? Those that most tokenizers bring, several times as fast as
// PCRE2 does it, to the same places.

#include <cstddef>
#include <span>
#include <string_view>

namespace skein::text {

// Where the match that begins at byte `at` of `text` (valid UTF-8, at < text.size()) ends; npos:
// none begins there. No match is empty.
using Matcher = size_t (*)(std::string_view text, size_t at);

struct KnownPattern {
  std::string_view expression;
  Matcher match;
};

std::span<const KnownPattern> known_patterns();
// By the exact text; null: unknown.
Matcher known_matcher(std::string_view expression);

}  // namespace skein::text
