// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The value of an arithmetic expression that somebody else wrote: numbers, + - * / and parentheses,
// also as × · ÷ − and \times, \cdot, \div. Exact; nothing else is computed, and nothing is run.

#include <optional>
#include <string_view>
#include <vector>

#include "skein/rewards/rational.h"

namespace skein::rewards {

struct Evaluated {
  Rational value;
  std::vector<Rational> numbers;  // that stand in it, in order
};

// Nothing for what is no expression, divides by zero, leaves 63 bits, or is longer than 1,000 bytes
// or nested deeper than 50.
std::optional<Evaluated> evaluate(std::string_view expression);

}  // namespace skein::rewards
