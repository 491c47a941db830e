// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/rational.h"

#include <algorithm>
#include <string>
#include <utility>

namespace skein::rewards {
namespace {

__extension__ using Wide = __int128;  // holds a sum of two products of 63 bits

constexpr Wide kMax = INT64_MAX;
constexpr int kMaxDigits = 18;  // of a decimal number: 10^18 fits

Wide common_divisor(Wide a, Wide b) {
  while (b != 0) {
    const auto rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

std::optional<Rational> reduced(Wide numerator, Wide denominator) {
  if (denominator == 0) return std::nullopt;
  if (denominator < 0) {
    numerator = -numerator;
    denominator = -denominator;
  }
  const auto divisor = common_divisor(numerator, denominator);
  numerator /= divisor;
  denominator /= divisor;
  if (numerator > kMax || numerator < -kMax || denominator > kMax) return std::nullopt;
  return Rational{.numerator = static_cast<int64_t>(numerator),
                  .denominator = static_cast<int64_t>(denominator)};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t num_digits(std::string_view text, size_t from) {
  size_t end = from;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - from;
}

// Where "1,234,567" ends; the comma of "1,23" or "1234,567" is none of its own.
size_t end_of_whole(std::string_view text) {
  size_t end = num_digits(text, 0);
  if (end == 0 || end > 3) return end;
  while (end < text.size() && text[end] == ',' && num_digits(text, end + 1) == 3) end += 4;
  return end;
}

// "e-3" at `from`; 0 and no bytes where there is none. Far out is far beyond what fits.
int take_exponent(std::string_view text, size_t& from) {
  if (from >= text.size() || (text[from] != 'e' && text[from] != 'E')) return 0;
  size_t at = from + 1;
  const bool negative = at < text.size() && text[at] == '-';
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  const auto digits = num_digits(text, at);
  if (digits == 0) return 0;
  int value = 0;
  for (size_t i = 0; i < digits; ++i) value = std::min(value * 10 + (text[at + i] - '0'), 1000);
  from = at + digits;
  return negative ? -value : value;
}

// digits · 10^exponent.
std::optional<Rational> scaled(std::string digits, int64_t exponent) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  while (!digits.empty() && digits.back() == '0') {
    digits.pop_back();
    ++exponent;
  }
  if (digits.empty()) return Rational{};
  const auto size = static_cast<int64_t>(digits.size());
  if (size > kMaxDigits || size + exponent > kMaxDigits || exponent < -kMaxDigits) {
    return std::nullopt;
  }
  Wide value = 0, power = 1;
  for (const char digit : digits) value = value * 10 + (digit - '0');
  for (int64_t i = 0; i < std::max(exponent, -exponent); ++i) power *= 10;
  return exponent < 0 ? reduced(value, power) : reduced(value * power, 1);
}

}  // namespace

std::optional<Rational> add(const Rational& a, const Rational& b) {
  return reduced(Wide{a.numerator} * b.denominator + Wide{b.numerator} * a.denominator,
                 Wide{a.denominator} * b.denominator);
}

std::optional<Rational> subtract(const Rational& a, const Rational& b) {
  return add(a, {.numerator = -b.numerator, .denominator = b.denominator});
}

std::optional<Rational> multiply(const Rational& a, const Rational& b) {
  return reduced(Wide{a.numerator} * b.numerator, Wide{a.denominator} * b.denominator);
}

std::optional<Rational> divide(const Rational& a, const Rational& b) {
  return reduced(Wide{a.numerator} * b.denominator, Wide{a.denominator} * b.numerator);
}

std::optional<Rational> take_decimal(std::string_view& text) {
  size_t at = end_of_whole(text);
  std::string digits(text.substr(0, at));
  std::erase(digits, ',');
  int64_t exponent = 0;
  if (at < text.size() && text[at] == '.') {
    const auto decimals = num_digits(text, at + 1);
    if (decimals == 0 && digits.empty()) return std::nullopt;
    digits += text.substr(at + 1, decimals);
    exponent = -static_cast<int64_t>(decimals);
    at += 1 + decimals;
  }
  if (digits.empty()) return std::nullopt;
  exponent += take_exponent(text, at);
  const auto value = scaled(std::move(digits), exponent);
  if (value) text.remove_prefix(at);
  return value;
}

}  // namespace skein::rewards
