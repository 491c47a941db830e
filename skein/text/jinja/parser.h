// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which statements and expressions do a template's words form?

#include <string_view>

#include "skein/text/jinja/lexer.h"
#include "skein/text/jinja/syntax.h"

namespace skein::text::jinja {

// Brackets and blocks may lie 64 levels inside each other. Throws SyntaxError, which names a
// statement that this engine does not know.
TemplateSyntax parse_template(std::string_view source);

}  // namespace skein::text::jinja
