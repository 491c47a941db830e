// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do the methods of strings, lists and dictionaries give?
//
// Those that templates use. Methods that would change a list or dictionary are refused, as the
// sandbox of transformers does.

#include <string>

#include "skein/text/jinja/arguments.h"
#include "skein/text/jinja/meter.h"
#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// Whether Python's type has a method of this name that is known here, or refused.
bool has_method(const Value& value, const std::string& name);
// Throws Failure, which lists the known methods, for a name without one.
Value call_method(const Value& value, const std::string& name, Arguments& arguments, Meter& meter);

}  // namespace skein::text::jinja
