// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The countdown game: does the expression of a completion use each number of its row once, and give
// the target?
#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/rewards/expression.h"
#include "skein/rewards/kinds.h"

namespace skein::rewards {
namespace {

using Json = nlohmann::json;

// What is asked for stands alone on the last line where there is no tag and no box.
std::string_view expression_of(std::string_view text) {
  text = trimmed(after_thinking(text));
  if (const auto answer = find_answer(text)) return *answer;
  const auto line = text.rfind('\n');
  return line == std::string_view::npos ? text : trimmed(text.substr(line + 1));
}

// "(3 + 5) * 2 = 16" counts where what stands behind the sign is right.
std::optional<Evaluated> evaluate_equation(std::string_view text) {
  if (text.size() > 1 && text.starts_with('$') && text.ends_with('$')) {
    text = text.substr(1, text.size() - 2);
  }
  const auto equals = text.find('=');
  auto result = evaluate(text.substr(0, equals));
  if (!result || equals == std::string_view::npos) return result;
  const auto said = number_of(text.substr(equals + 1));
  return said && *said == result->value ? result : std::nullopt;
}

bool same_numbers(std::vector<Rational> a, std::vector<Rational> b) {
  return a.size() == b.size() && std::ranges::is_permutation(a, b);
}

class ArithmeticReward final : public SingleReward {
 public:
  ArithmeticReward(const std::string& name, const Arguments& arguments) : SingleReward(name) {
    if (const auto column = arguments.text("numbers")) numbers_ = {*column};
    if (const auto column = arguments.text("target")) target_ = {*column};
  }

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto& row = columns(completion);
    const auto* numbers = find_column(row, numbers_);
    const auto* target = find_column(row, target_);
    if (numbers == nullptr || target == nullptr) return std::nullopt;
    const auto given = numbers_of(*numbers, completion);
    const auto wanted = number(*target, completion);
    const auto result = evaluate_equation(expression_of(completion.text));
    return result && result->value == wanted && same_numbers(result->numbers, given) ? 1 : 0;
  }

  std::vector<Rational> numbers_of(const Json& column, const Completion& completion) const {
    std::vector<Rational> result;
    if (!column.is_array()) refuse("no list", completion);
    for (const auto& entry : column) result.push_back(number(entry, completion));
    return result;
  }

  Rational number(const Json& value, const Completion& completion) const {
    const auto text = text_of(value);
    const auto result = text ? number_of(*text) : std::nullopt;
    if (!result) refuse("no number", completion);
    return *result;
  }

  [[noreturn]] void refuse(std::string_view what, const Completion& completion) const {
    throw UserError(fmt::format("the reward '{}': {}: {} in the columns that it reads", name(),
                                place_of(completion), what));
  }

  std::vector<std::string> numbers_{"nums", "numbers"};
  std::vector<std::string> target_{"target"};
};

}  // namespace

RewardPointer make_arithmetic_reward(const std::string& name, const Arguments& arguments) {
  return std::make_unique<ArithmeticReward>(name, arguments);
}

}  // namespace skein::rewards
