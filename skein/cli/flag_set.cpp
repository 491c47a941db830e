// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/flag_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

template <typename Number>
Number parse_number(const std::string& name, const std::string& text, const char* expected) {
  Number value{};
  const auto* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) {
    throw UserError(fmt::format("--{} is '{}', expected {}", name, text, expected));
  }
  return value;
}

int64_t parse_integer(const std::string& name, const std::string& text, int64_t least) {
  const auto value = parse_number<int64_t>(name, text, "an integer");
  if (value >= least) return value;
  throw UserError(fmt::format("--{} is {}, expected at least {}", name, value, least));
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Without the dashes in front and without a value; those inside as they are declared.
std::string name_of(const std::string& word) {
  auto name = word.substr(0, word.find('='));
  if (name.starts_with("--")) name.erase(0, 2);
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

void FlagSet::add(const std::string& name, bool& given) {
  flags_.push_back({name, Takes::kNothing, [&given](const std::string&) { given = true; }});
}

void FlagSet::add(const std::string& name, std::string& value) {
  add_one(name, [&value](const std::string& text) { value = text; });
}

void FlagSet::add(const std::string& name, int64_t& value, int64_t least) {
  add_one(name, [=, &value](const std::string& text) { value = parse_integer(name, text, least); });
}

void FlagSet::add(const std::string& name, std::optional<std::string>& value) {
  add_one(name, [&value](const std::string& text) { value = text; });
}

void FlagSet::add(const std::string& name, std::optional<int64_t>& value) {
  constexpr auto kLeast = std::numeric_limits<int64_t>::min();
  add_one(name,
          [=, &value](const std::string& text) { value = parse_integer(name, text, kLeast); });
}

void FlagSet::add(const std::string& name, std::optional<double>& value) {
  add_one(name, [=, &value](const std::string& text) {
    value = parse_number<double>(name, text, "a number");
  });
}

void FlagSet::add(const std::string& name, std::vector<std::string>& values) {
  add(name, [&values](const std::string& text) { values.push_back(text); });
}

void FlagSet::add_list(const std::string& name, std::vector<std::string>& values) {
  flags_.push_back(
      {name, Takes::kList, [&values](const std::string& text) { values.push_back(text); }});
}

void FlagSet::add(const std::string& name, std::function<void(const std::string&)> use) {
  flags_.push_back({name, Takes::kMany, std::move(use)});
}

void FlagSet::add_one(const std::string& name, std::function<void(const std::string&)> use) {
  flags_.push_back({name, Takes::kOne, std::move(use)});
}

void FlagSet::add_foreign(const std::string& name, const std::string& instead) {
  flags_.push_back({name, Takes::kForeign, [=, command = command_](const std::string&) {
                      throw UserError(fmt::format("{} has no --{}: {}", command, name, instead));
                    }});
}

std::vector<std::string> FlagSet::read(std::span<const std::string> arguments,
                                       Unknown unknown) const {
  std::vector<std::string> words;
  std::set<const Flag*> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& word = arguments[i];
    const auto* flag = find(word);
    if (flag == nullptr) {
      if (word.starts_with("--") && unknown == Unknown::kRefuse) refuse(word);
      words.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    if (flag->takes == Takes::kForeign) flag->use("");
    if (flag->takes == Takes::kOne && !given.insert(flag).second) {
      throw UserError(fmt::format("--{} is given twice", flag->name));
    }
    if (flag->takes == Takes::kNothing) {
      if (equals != std::string::npos) {
        throw UserError(fmt::format("--{} takes no value", flag->name));
      }
      flag->use("");
    } else if (equals != std::string::npos) {
      flag->use(word.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      // One value is taken whatever it looks like: a text may begin with dashes.
      flag->use(arguments[++i]);
      const auto goes_on = [&] {
        return i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
      };
      while (flag->takes == Takes::kList && goes_on()) flag->use(arguments[++i]);
    } else {
      throw UserError(fmt::format("--{} needs a value", flag->name));
    }
  }
  return words;
}

const FlagSet::Flag* FlagSet::find(const std::string& word) const {
  if (!word.starts_with("--") && word.find('=') == std::string::npos) return nullptr;
  const auto name = name_of(word);
  if (const auto found = std::ranges::find(flags_, name, &Flag::name); found != flags_.end()) {
    return &*found;
  }
  const auto foreign = std::ranges::find_if(flags_, [&](const Flag& flag) {
    return flag.takes == Takes::kForeign && flag.name == lower_case(name);
  });
  return foreign == flags_.end() ? nullptr : &*foreign;
}

std::vector<std::string> FlagSet::names() const {
  std::vector<std::string> names;
  for (const auto& flag : flags_) {
    if (flag.takes != Takes::kForeign) names.push_back(flag.name);
  }
  return names;
}

void FlagSet::refuse(const std::string& word) const {
  std::vector<std::string> known = {"--help"};
  for (const auto& name : names()) known.push_back("--" + name);
  const auto typed = "--" + name_of(word);
  throw UserError(fmt::format("{} has no flag '{}'{} (`{} --help` lists them)", command_, typed,
                              config::did_you_mean(typed, known), command_));
}

void FlagSet::refuse_value(const std::string& name, const std::string& text,
                           const std::vector<std::string>& expected) {
  throw UserError(fmt::format("--{} is '{}', expected one of {}{}", name, text,
                              fmt::join(expected, ", "), config::did_you_mean(text, expected)));
}

bool asks_for_help(std::span<const std::string> arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

}  // namespace skein::cli
