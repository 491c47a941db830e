// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do `value | filter(…)` and `value is test(…)` give?

#include <string>

#include "skein/text/jinja/arguments.h"
#include "skein/text/jinja/meter.h"
#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// jinja2's filters as far as chat templates use them, with the tojson of transformers. Throws
// Failure, which names a filter that is unknown.
Value apply_filter(const std::string& name, const Value& value, Arguments& arguments, Meter& meter);

bool apply_test(const std::string& name, const Value& value, Arguments& arguments, Meter& meter);

}  // namespace skein::text::jinja
