// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which patterns are matched by hand? Those that most tokenizers bring, several times as fast as
// PCRE2 does it, to the same places.

#include <cstddef>
#include <span>
#include <string_view>

#include "skein/text/parts/piece.h"

namespace skein::text {

// The first match in `text` (valid UTF-8) that begins at byte `from` or behind it; false: there is
// none. No match is empty.
using Finder = bool (*)(std::string_view text, size_t from, TokenSpan& found);

struct KnownPattern {
  std::string_view expression;
  Finder find;
};

std::span<const KnownPattern> known_patterns();
// By the exact text; null: unknown.
Finder known_finder(std::string_view expression);

}  // namespace skein::text
