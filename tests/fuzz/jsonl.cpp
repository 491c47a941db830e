// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// One line of a .jsonl file.
#include "skein/text/jsonl.h"

#include "skein/core/error.h"
#include "skein/text/parts/unicode.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void jsonl(std::string_view bytes) try {
  const auto text = text::text_of_line(bytes);
  require(text::valid_utf8_prefix(text) == text.size(), "a text is UTF-8");
} catch (const IoError&) {
}

}  // namespace skein::fuzz
