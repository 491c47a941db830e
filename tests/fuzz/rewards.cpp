// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What a model has written, the row of its prompt, and what a reward program says.
#include <cmath>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/rewards/answer.h"
#include "skein/rewards/expression.h"
#include "skein/rewards/protocol.h"
#include "skein/rewards/schema.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void check_answer(std::string_view bytes) {
  if (const auto answer = rewards::find_answer(bytes)) {
    require(answer->size() <= bytes.size(), "an answer stands in its text");
    require(*answer == rewards::trimmed(*answer), "without white space around it");
  }
  const auto number = rewards::number_of(bytes);
  if (number) require(number->denominator > 0, "a number is a fraction in its one form");
  using enum rewards::Compare;
  require(rewards::same_answer(bytes, bytes, kText), "an answer is itself");
  require(rewards::same_answer(bytes, bytes, kNumber) == number.has_value(), "also as a number");
  if (const auto value = rewards::evaluate(bytes)) {
    require(!value->numbers.empty() && value->value.denominator > 0, "a value comes of numbers");
  }
}

// One line of JSON is the schema, the next a value.
void check_schema(std::string_view bytes) try {
  const auto line = bytes.find('\n');
  const rewards::Schema schema(parse_json(bytes.substr(0, line)), "fuzz");
  if (line != std::string_view::npos) schema.accepts(parse_json(bytes.substr(line + 1)));
} catch (const JsonError&) {
} catch (const UserError&) {
}

void check_ready(std::string_view bytes) try {
  const auto ready = rewards::read_ready(bytes);
  require(!ready.names.empty() && ready.names.size() == ready.weights.size(), "weights by name");
} catch (const rewards::BadLine&) {
}

void check_reply(std::string_view bytes, const rewards::Expected& expected) try {
  const auto answer = rewards::read_answer(bytes, expected);
  require(answer.messages.empty() != answer.rewards.empty(), "a reward or messages");
  require(answer.messages.empty() || expected.may_go_on, "messages where they may be");
  require(answer.rewards.empty() || answer.rewards.size() == expected.num_rewards, "by name");
  for (const auto& reward : answer.rewards) {
    require(!reward || std::isfinite(*reward), "a reward is finite");
  }
} catch (const rewards::BadLine&) {
}

void check_built_in(std::string_view bytes) try {
  const auto line = bytes.find('\n');
  const rewards::Completion completion{
      .text = line == std::string_view::npos ? "" : bytes.substr(line + 1),
      .row = bytes.substr(0, line)};
  for (const auto* spec :
       {"accuracy", "format", "regex:(\\w+\\s?)+$", "arithmetic", "json", "json:column=schema"}) {
    const auto score = rewards::make_reward(spec)->score({&completion, 1}).at(0);
    require(!score || (*score >= 0 && *score <= 1), "a built-in reward is from 0 to 1");
  }
} catch (const UserError&) {
}

}  // namespace

void rewards(std::string_view bytes) {
  check_answer(bytes);
  check_schema(bytes);
  check_ready(bytes);
  check_reply(bytes, {});
  check_reply(bytes, {.num_rewards = 2, .may_go_on = true});
  check_built_in(bytes);
}

}  // namespace skein::fuzz
