// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/methods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "skein/text/jinja/operations.h"
#include "skein/text/jinja/python_text.h"
#include "skein/text/jinja/string_format.h"

namespace skein::text::jinja {
namespace {

struct Call {
  const Value& receiver;
  Arguments& arguments;
  Meter& meter;

  const std::string& text() const { return *receiver.string(); }
};
using Run = Value (*)(const Call& call);
using Methods = std::map<std::string, Run, std::less<>>;

Value texts(const std::vector<std::string_view>& parts, Meter& meter) {
  meter.step(parts.size());
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const auto part : parts) values.emplace_back(part);
  return Value::list(std::move(values));
}

template <Side side>
Value strip(const Call& call) {
  const auto characters = call.arguments.take("chars");
  const auto* set = characters.string();
  return Value(
      stripped(call.text(), side, set ? std::optional<std::string_view>(*set) : std::nullopt));
}

template <auto function>
Value split_with(const Call& call) {
  const auto separator = call.arguments.take("sep");
  const int64_t limit = call.arguments.integer("maxsplit", -1);
  if (!separator.string()) return texts(function(call.text(), std::nullopt, limit), call.meter);
  if (separator.string()->empty()) throw Failure("split: an empty separator");
  return texts(function(call.text(), *separator.string(), limit), call.meter);
}

// startswith and endswith, of one string or a tuple of them.
template <bool at_start>
Value any_of(const Call& call) {
  const auto wanted = call.arguments.take("prefix");
  const auto match = [&](const Value& one) {
    if (!one.string()) {
      throw Failure(fmt::format("{}: {}, expected a string", call.arguments.what(), one.type()));
    }
    return at_start ? call.text().starts_with(*one.string()) : call.text().ends_with(*one.string());
  };
  if (const auto* tuple = wanted.sequence()) {
    return Value(std::ranges::any_of(tuple->items, match));
  }
  return Value(match(wanted));
}

template <auto change>
Value changed_text(const Call& call) {
  return Value(change(call.text()));
}

template <CharacterKind kind>
Value consists(const Call& call) {
  return Value(consists_of(call.text(), kind));
}

std::optional<int64_t> place_of(const Call& call, bool last) {
  const auto part = call.arguments.string("sub");
  const size_t at = last ? call.text().rfind(part) : call.text().find(part);
  if (at == std::string::npos) return std::nullopt;
  return length_of(std::string_view(call.text()).substr(0, at));
}

template <bool last>
Value find(const Call& call) {
  return Value(place_of(call, last).value_or(-1));
}

template <bool last>
Value index(const Call& call) {
  const auto place = place_of(call, last);
  if (!place) throw Failure("index: the part is not in the string");
  return Value(*place);
}

Value count_text(const Call& call) {
  const auto part = call.arguments.string("sub");
  if (part.empty()) return Value(length_of(std::string_view(call.text())) + 1);
  return Value(static_cast<int64_t>(split(call.text(), part, -1).size()) - 1);
}

Value replace(const Call& call) {
  const auto from = call.arguments.string("old"), to = call.arguments.string("new");
  const int64_t limit = call.arguments.integer("count", -1);
  // Where `from` is empty, `to` comes before every character.
  const auto places = call.text().size() / std::max<size_t>(from.size(), 1) + 1;
  if (to.size() > from.size()) call.meter.text(places * (to.size() - from.size()));
  return Value(replaced(call.text(), from, to, limit));
}

Value join(const Call& call) {
  const auto items = items_of(call.arguments.take("iterable"), call.meter);
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].string()) {
      throw Failure(fmt::format("join: item {} is {}, expected a string", i, items[i].type()));
    }
    call.meter.text(items[i].weight() + call.text().size());
    if (i > 0) result += call.text();
    result += *items[i].string();
  }
  return Value(std::move(result));
}

template <bool last>
Value partition(const Call& call) {
  const auto separator = call.arguments.string("sep");
  if (separator.empty()) throw Failure("partition: an empty separator");
  const std::string_view text = call.text();
  const size_t at = last ? text.rfind(separator) : text.find(separator);
  if (at == std::string_view::npos) {
    return last ? Value::tuple({Value(""), Value(""), call.receiver})
                : Value::tuple({call.receiver, Value(""), Value("")});
  }
  return Value::tuple(
      {Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))});
}

template <bool prefix>
Value without_affix(const Call& call) {
  const auto affix = call.arguments.string("affix");
  std::string_view text = call.text();
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return Value(text);
}

Value lines_of(const Call& call) {
  return texts(split_lines(call.text(), call.arguments.take("keepends").truth()), call.meter);
}

Value format(const Call& call) {
  return Value(brace_format(call.text(), call.arguments, call.meter));
}

const Methods& string_methods() {
  static const Methods methods = {
      {"capitalize", changed_text<capitalized>},
      {"count", count_text},
      {"endswith", any_of<false>},
      {"find", find<false>},
      {"format", format},
      {"index", index<false>},
      {"isalnum", consists<CharacterKind::kLetterOrDigit>},
      {"isalpha", consists<CharacterKind::kLetter>},
      {"isdigit", consists<CharacterKind::kDigit>},
      {"islower", changed_text<is_lower>},
      {"isspace", consists<CharacterKind::kSpace>},
      {"isupper", changed_text<is_upper>},
      {"join", join},
      {"lower", changed_text<lower>},
      {"lstrip", strip<Side::kLeft>},
      {"partition", partition<false>},
      {"removeprefix", without_affix<true>},
      {"removesuffix", without_affix<false>},
      {"replace", replace},
      {"rfind", find<true>},
      {"rindex", index<true>},
      {"rpartition", partition<true>},
      {"rsplit", split_with<split_from_right>},
      {"rstrip", strip<Side::kRight>},
      {"split", split_with<split>},
      {"splitlines", lines_of},
      {"startswith", any_of<true>},
      {"strip", strip<Side::kBoth>},
      {"title", changed_text<titled>},
      {"upper", changed_text<upper>},
  };
  return methods;
}

Value refuse_change(const Call& call) {
  throw Failure(fmt::format("{} would change {}, which templates may not; use a namespace()",
                            call.arguments.what(), call.receiver.type()));
}

Value get(const Call& call) {
  const auto key = call.arguments.take("key");
  auto otherwise = call.arguments.find("default");
  const auto* found = key.string() ? call.receiver.dict()->find(*key.string()) : nullptr;
  if (found) return *found;
  return otherwise ? std::move(*otherwise) : Value::none();
}

Value items(const Call& call) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : call.receiver.dict()->entries()) {
    pairs.push_back(Value::tuple({Value(key), value}));
  }
  call.meter.step(pairs.size());
  return Value::list(std::move(pairs));
}

Value keys(const Call& call) { return Value::list(items_of(call.receiver, call.meter)); }

Value values(const Call& call) {
  std::vector<Value> result;
  for (const auto& [key, value] : call.receiver.dict()->entries()) result.push_back(value);
  call.meter.step(result.size());
  return Value::list(std::move(result));
}

Value copy(const Call& call) { return call.receiver; }

const Methods& dict_methods() {
  static const Methods methods = {
      {"clear", refuse_change},
      {"copy", copy},
      {"get", get},
      {"items", items},
      {"keys", keys},
      {"pop", refuse_change},
      {"popitem", refuse_change},
      {"setdefault", refuse_change},
      {"update", refuse_change},
      {"values", values},
  };
  return methods;
}

Value count_items(const Call& call) {
  const auto wanted = call.arguments.take("value");
  call.meter.text(call.receiver.weight());
  return Value(static_cast<int64_t>(std::ranges::count(call.receiver.sequence()->items, wanted)));
}

Value index_of_item(const Call& call) {
  const auto wanted = call.arguments.take("value");
  call.meter.text(call.receiver.weight());
  const auto& all = call.receiver.sequence()->items;
  const auto found = std::ranges::find(all, wanted);
  if (found == all.end()) throw Failure("index: the value is not in the list");
  return Value(static_cast<int64_t>(found - all.begin()));
}

const Methods& list_methods() {
  static const Methods methods = {
      {"append", refuse_change},  {"clear", refuse_change},  {"copy", copy},
      {"count", count_items},     {"extend", refuse_change}, {"index", index_of_item},
      {"insert", refuse_change},  {"pop", refuse_change},    {"remove", refuse_change},
      {"reverse", refuse_change}, {"sort", refuse_change},
  };
  return methods;
}

const Methods& methods_of(const Value& value) {
  static const Methods none;
  if (value.string()) return string_methods();
  if (value.dict()) return dict_methods();
  return value.sequence() ? list_methods() : none;
}

}  // namespace

bool has_method(const Value& value, const std::string& name) {
  return methods_of(value).contains(name);
}

Value call_method(const Value& value, const std::string& name, Arguments& arguments, Meter& meter) {
  const auto& methods = methods_of(value);
  const auto found = methods.find(name);
  if (found == methods.end()) {
    std::vector<std::string> known;
    for (const auto& [method, run] : methods) {
      if (run != refuse_change) known.push_back(method);
    }
    throw Failure(known.empty()
                      ? fmt::format("{} has no method '{}'", value.type(), name)
                      : fmt::format("{} has no method '{}' that is known here; known are {}",
                                    value.type(), name, fmt::join(known, ", ")));
  }
  if (value.string()) meter.text(value.weight());
  auto result = found->second({.receiver = value, .arguments = arguments, .meter = meter});
  arguments.finish();
  return result;
}

}  // namespace skein::text::jinja
