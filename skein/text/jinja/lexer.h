// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which words does a template consist of?
//
// White space is controlled as transformers sets jinja2 up: the newline behind a block or comment
// goes (trim_blocks), and so does the white space before one that begins its line (lstrip_blocks);
// `-` takes all white space on its side, `+` none. One newline at the end of the template goes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text::jinja {

enum class TokenKind : uint8_t {
  kText,        // to be printed as it is
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // brackets too
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string what it stands for
  int line = 1;

  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
};

// A template that is not one, or that needs what this engine lacks. `line` counts from 1.
struct SyntaxError {
  int line = 1;
  std::string why;
};

// The last token is kEnd. `source` is valid UTF-8. Throws SyntaxError.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace skein::text::jinja
