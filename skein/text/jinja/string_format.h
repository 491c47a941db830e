// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do "…%s…" % value and "…{}…".format(value) give?

#include <string>
#include <string_view>

#include "skein/text/jinja/arguments.h"
#include "skein/text/jinja/meter.h"
#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// Knows %s, %r, %d, %i and %%. `values` is a tuple of them, or the only one.
std::string percent_format(std::string_view format, const Value& values, Meter& meter);
// Knows {}, {0}, {name}, {{ and }}.
std::string brace_format(std::string_view format, Arguments& arguments, Meter& meter);

}  // namespace skein::text::jinja
