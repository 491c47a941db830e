// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/expression.h"

#include <array>
#include <utility>

#include "skein/rewards/answer.h"

namespace skein::rewards {
namespace {

constexpr size_t kMaxBytes = 1000;
constexpr int kMaxDepth = 50;

using Value = std::optional<Rational>;

// sum = product (("+" | "-") product)*;  product = factor (("*" | "/") factor)*;
// factor = "-" factor | "(" sum ")" | number
class Evaluator {
 public:
  explicit Evaluator(std::string_view text) : rest_(text) {}

  std::optional<Evaluated> run() {
    const auto value = sum();
    if (!value || next() != 0) return std::nullopt;
    return Evaluated{.value = *value, .numbers = std::move(numbers_)};
  }

 private:
  // The sign that comes next; 0 at the end, 'n' for what begins no sign.
  char next() {
    rest_ = trimmed(rest_);
    if (rest_.empty()) return 0;
    taken_ = 1;
    if (std::string_view("+-*/()").find(rest_.front()) != std::string_view::npos) {
      return rest_.front();
    }
    using Spelling = std::pair<std::string_view, char>;
    static constexpr auto kSpellings = std::to_array<Spelling>({{"×", '*'},
                                                                {"·", '*'},
                                                                {"÷", '/'},
                                                                {"\u2212", '-'},
                                                                {"\\times", '*'},
                                                                {"\\cdot", '*'},
                                                                {"\\div", '/'}});
    for (const auto& [spelling, sign] : kSpellings) {
      if (!rest_.starts_with(spelling)) continue;
      taken_ = spelling.size();
      return sign;
    }
    return 'n';
  }

  void take() { rest_.remove_prefix(taken_); }

  Value sum() {
    auto value = product();
    while (value) {
      const char sign = next();
      if (sign != '+' && sign != '-') break;
      take();
      const auto other = product();
      if (!other) return std::nullopt;
      value = sign == '+' ? add(*value, *other) : subtract(*value, *other);
    }
    return value;
  }

  Value product() {
    auto value = factor();
    while (value) {
      const char sign = next();
      if (sign != '*' && sign != '/') break;
      take();
      const auto other = factor();
      if (!other) return std::nullopt;
      value = sign == '*' ? multiply(*value, *other) : divide(*value, *other);
    }
    return value;
  }

  Value factor() {
    if (++depth_ > kMaxDepth) return std::nullopt;
    const char sign = next();
    Value value;
    if (sign == '-') {
      take();
      if (const auto positive = factor()) value = subtract({}, *positive);
    } else if (sign == '(') {
      take();
      value = sum();
      if (next() != ')') return std::nullopt;
      take();
    } else if (sign == 'n') {
      value = take_decimal(rest_);
      if (value) numbers_.push_back(*value);
    }
    --depth_;
    return value;
  }

  std::string_view rest_;
  size_t taken_ = 0;  // bytes of the sign that next() has seen
  int depth_ = 0;
  std::vector<Rational> numbers_;
};

}  // namespace

std::optional<Evaluated> evaluate(std::string_view expression) {
  if (expression.size() > kMaxBytes) return std::nullopt;
  return Evaluator(expression).run();
}

}  // namespace skein::rewards
