// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/reward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/rewards/kinds.h"

namespace skein::rewards {
namespace {

struct Kind {
  std::string name;
  std::vector<std::string> parameters;
  std::function<RewardPointer(const std::string& name, const Arguments&)> make;
};

Kind answer_kind(const std::string& name, std::optional<AnswerForm> form) {
  return {name, {"column", "as"}, [form](const std::string& as, const Arguments& arguments) {
            return make_answer_reward(as, form, arguments);
          }};
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      answer_kind("accuracy", std::nullopt),
      answer_kind("answer", AnswerForm::kHashes),
      answer_kind("boxed", AnswerForm::kBoxed),
      answer_kind("answer_tag", AnswerForm::kTag),
      {"format", {}, [](const auto& name, const auto&) { return make_format_reward(name); }},
      {"think_format",
       {},
       [](const auto& name, const auto&) { return make_think_format_reward(name); }},
      {"length", {"min", "max", "margin"}, make_length_reward},
      {"overlong", {"max", "buffer"}, make_overlong_reward},
      {"arithmetic", {"numbers", "target"}, make_arithmetic_reward},
      {"json", {"schema", "column"}, make_json_reward},
  };
  return all;
}

[[noreturn]] void refuse_name(const std::string& name) {
  std::vector<std::string> names{"regex"};
  for (const auto& kind : kinds()) names.push_back(kind.name);
  const auto near = config::did_you_mean(name, names);
  throw UserError(fmt::format(
      "unknown reward '{}'{}", name,
      near.empty() ? fmt::format("; built in are {}; others are functions of your own: "
                                 "reward_program=[python3,scripts/reward_functions.py,FILE]",
                                 fmt::join(names, ", "))
                   : near));
}

}  // namespace

std::string place_of(const Completion& completion) {
  const auto row = completion.place.empty() ? "" : fmt::format(" ({})", completion.place);
  return fmt::format("sample {}{}, generation {}", completion.sample, row, completion.generation);
}

std::unique_ptr<Reward> make_reward(const std::string& spec) {
  const auto colon = std::min(spec.find(':'), spec.size());
  auto name = spec.substr(0, colon);
  const auto rest = std::string_view(spec).substr(std::min(colon + 1, spec.size()));
  if (name.ends_with("_reward")) name.resize(name.size() - 7);  // TRL's accuracy_reward
  if (name == "regex") {
    if (rest.empty()) throw UserError("the reward 'regex' needs a pattern: regex:PATTERN");
    return make_regex_reward(name, std::string(rest));
  }
  const auto kind = std::ranges::find(kinds(), name, &Kind::name);
  if (kind == kinds().end()) refuse_name(name);
  return kind->make(name, Arguments(spec, rest, kind->parameters));
}

}  // namespace skein::rewards
