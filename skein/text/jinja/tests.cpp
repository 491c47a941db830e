// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>

#include <map>

#include "skein/text/jinja/filters.h"
#include "skein/text/jinja/operations.h"
#include "skein/text/jinja/python_text.h"

namespace skein::text::jinja {
namespace {

struct Call {
  const Value& value;
  Arguments& arguments;
  Meter& meter;
};
using Run = bool (*)(const Call& call);

template <Operator op>
bool compares(const Call& call) {
  return compare(op, call.value, call.arguments.take("other"), call.meter);
}

template <int64_t rest>
bool leaves(const Call& call) {
  const auto number = binary(Operator::kModulo, call.value, Value(int64_t{2}), call.meter);
  return number == Value(rest);
}

bool divisible(const Call& call) {
  const auto rest = binary(Operator::kModulo, call.value, call.arguments.take("num"), call.meter);
  return rest == Value(int64_t{0});
}

bool is_iterable(const Call& call) {
  return call.value.string() || call.value.sequence() || call.value.dict() ||
         call.value.is_undefined();
}

bool is_sequence(const Call& call) {
  const auto* sequence = call.value.sequence();
  return sequence ? sequence->kind != Sequence::Kind::kGenerator : is_iterable(call);
}

bool is_callable(const Call& call) {
  return call.value.get<Function>() || call.value.get<std::shared_ptr<const Method>>() ||
         call.value.get<const MacroSyntax*>();
}

const std::map<std::string, Run, std::less<>>& tests() {
  static const std::map<std::string, Run, std::less<>> tests = {
      {"boolean", [](const Call& c) { return c.value.get<bool>() != nullptr; }},
      {"callable", is_callable},
      {"defined", [](const Call& c) { return !c.value.is_undefined(); }},
      {"divisibleby", divisible},
      {"eq", compares<Operator::kEqual>},
      {"equalto", compares<Operator::kEqual>},
      {"even", leaves<0>},
      {"false", [](const Call& c) { return c.value.get<bool>() && !c.value.truth(); }},
      {"float", [](const Call& c) { return c.value.get<double>() != nullptr; }},
      {"ge", compares<Operator::kGreaterOrEqual>},
      {"greaterthan", compares<Operator::kGreater>},
      {"gt", compares<Operator::kGreater>},
      {"in", compares<Operator::kIn>},
      {"integer", [](const Call& c) { return c.value.get<int64_t>() != nullptr; }},
      {"iterable", is_iterable},
      {"le", compares<Operator::kLessOrEqual>},
      {"lessthan", compares<Operator::kLess>},
      {"lower", [](const Call& c) { return is_lower(text_of(c.value, c.meter)); }},
      {"lt", compares<Operator::kLess>},
      {"mapping", [](const Call& c) { return c.value.dict() != nullptr; }},
      {"ne", compares<Operator::kNotEqual>},
      {"none", [](const Call& c) { return c.value.is_none(); }},
      {"number", [](const Call& c) { return c.value.number().has_value(); }},
      {"odd", leaves<1>},
      {"sameas", [](const Call& c) { return c.value.same(c.arguments.take("other")); }},
      {"sequence", is_sequence},
      {"string", [](const Call& c) { return c.value.string() != nullptr; }},
      {"true", [](const Call& c) { return c.value.get<bool>() && c.value.truth(); }},
      {"undefined", [](const Call& c) { return c.value.is_undefined(); }},
      {"upper", [](const Call& c) { return is_upper(text_of(c.value, c.meter)); }},
  };
  return tests;
}

}  // namespace

bool apply_test(const std::string& name, const Value& value, Arguments& arguments, Meter& meter) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw Failure(fmt::format("the test 'is {}' is unknown", name));
  const bool result = found->second({.value = value, .arguments = arguments, .meter = meter});
  arguments.finish();
  return result;
}

}  // namespace skein::text::jinja
