// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Is the answer of a completion the one of its row?
#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/rewards/kinds.h"

namespace skein::rewards {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kColumns = {"answer",
                                           "solution",
                                           "ground_truth",
                                           "final_answer",
                                           "label",
                                           "target",
                                           "reward_model.ground_truth"};

Compare compare_of(const Arguments& arguments) {
  const auto as = arguments.text("as").value_or("any");
  if (as == "text") return Compare::kText;
  if (as == "number") return Compare::kNumber;
  if (as != "any") arguments.refuse(fmt::format("as is '{}', expected text, number or any", as));
  return Compare::kAny;
}

class AnswerReward final : public SingleReward {
 public:
  AnswerReward(const std::string& name, std::optional<AnswerForm> form, const Arguments& arguments)
      : SingleReward(name), form_(form), compare_(compare_of(arguments)), columns_(kColumns) {
    if (const auto column = arguments.text("column")) columns_ = {*column};
  }

 private:
  std::optional<double> judge(const Completion& completion) override {
    const auto* column = find_column(columns(completion), columns_);
    if (column == nullptr) return std::nullopt;
    const auto answer = answer_of(completion.text);
    bool right = false;
    for (const auto& gold : golds(*column, completion)) {
      right = right || (answer && same_answer(*answer, gold, compare_));
    }
    return right ? 1 : 0;
  }

  std::optional<std::string_view> answer_of(std::string_view text) const {
    text = after_thinking(text);
    if (form_) return find_answer(text, *form_);
    const auto found = find_answer(text).value_or(trimmed(text));
    return found.empty() ? std::nullopt : std::optional(found);
  }

  // A list names several answers that are right.
  std::vector<std::string> golds(const Json& column, const Completion& completion) const {
    std::vector<std::string> golds;
    const auto add = [&](const Json& value) {
      if (const auto text = text_of(value)) golds.push_back(gold_of(*text, completion));
    };
    if (column.is_array()) {
      std::ranges::for_each(column, add);
    } else {
      add(column);
    }
    if (golds.empty()) {
      throw UserError(fmt::format(
          "the reward '{}': {}: its answer is neither a text, a number nor a list of such", name(),
          place_of(completion)));
    }
    return golds;
  }

  std::string gold_of(std::string_view text, const Completion& completion) const {
    const auto gold = find_answer(text).value_or(trimmed(text));
    if (compare_ == Compare::kNumber && !number_of(gold)) {
      throw UserError(fmt::format("the reward '{}': {}: its row's answer '{}' is no number", name(),
                                  place_of(completion), shown(gold)));
    }
    return std::string(gold);
  }

  std::optional<AnswerForm> form_;
  Compare compare_;
  std::vector<std::string> columns_;
};

}  // namespace

RewardPointer make_answer_reward(const std::string& name, std::optional<AnswerForm> form,
                                 const Arguments& arguments) {
  return std::make_unique<AnswerReward>(name, form, arguments);
}

}  // namespace skein::rewards
