// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Exact numbers: fractions of two whole numbers of 63 bits, in lowest terms.
//
// What does not fit is no number (nullopt), never a rounded one: an answer is right or it is not.

#include <cstdint>
#include <optional>
#include <string_view>

namespace skein::rewards {

struct Rational {
  int64_t numerator = 0;
  int64_t denominator = 1;  // above 0

  bool operator==(const Rational&) const = default;
};

std::optional<Rational> add(const Rational& a, const Rational& b);
std::optional<Rational> subtract(const Rational& a, const Rational& b);
std::optional<Rational> multiply(const Rational& a, const Rational& b);
std::optional<Rational> divide(const Rational& a, const Rational& b);  // none by zero

// Takes a decimal number without a sign from the front of `text`: digits, with commas between
// groups of three or without, a point, an exponent. Nothing, and `text` as it was, where there is
// none.
std::optional<Rational> take_decimal(std::string_view& text);

}  // namespace skein::rewards
