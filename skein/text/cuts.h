// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where may a text be cut, so that its parts give the same ids as the whole?

#include <cstddef>
#include <optional>
#include <string_view>

namespace skein::text {

enum class Cuts {
  kNowhere,
  kBetweenWords,  // where is_safe_cut() says so
  kAnywhere,      // byte by byte; the text need not be UTF-8
};

// Whether a text may be cut before `at`: before a space that follows an ASCII letter, or after a
// single line feed between characters that are surely no white space. No token of the common
// byte-level tokenizers (see has_safe_cuts) lies across such a place.
bool is_safe_cut(std::string_view text, size_t at);

// The first such place in `text` from `from` on; one after a line feed wins over those before it.
std::optional<size_t> find_safe_cut(std::string_view text, size_t from);

// Whether no match of a pre-tokenizer's pattern lies across a safe cut. Known of GPT-2's, Llama 3's
// (cl100k's) and Qwen's.
bool has_safe_cuts(std::string_view pattern);

}  // namespace skein::text
