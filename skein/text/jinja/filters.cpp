// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "skein/text/jinja/json_value.h"
#include "skein/text/jinja/operations.h"
#include "skein/text/jinja/python_text.h"
#include "skein/text/jinja/string_format.h"

namespace skein::text::jinja {
namespace {

struct Call {
  const Value& value;
  Arguments& arguments;
  Meter& meter;

  std::string text() const { return text_of(value, meter); }
  std::vector<Value> items() const { return items_of(value, meter); }
};
using Run = Value (*)(const Call& call);

// -- strings --

template <auto change>
Value changed_text(const Call& call) {
  return Value(change(call.text()));
}

std::string plain(const std::string& text) { return text; }

// jinja2 begins words behind fewer characters than Python's title().
std::string titled_words(std::string_view text) {
  std::string result;
  bool begins = true;
  for (const auto character : characters_of(text)) {
    result += begins ? upper(character) : lower(character);
    begins = stripped(character, Side::kBoth).empty() ||
             std::string_view("-({[<").find(character) != std::string_view::npos;
  }
  return result;
}

Value trim(const Call& call) {
  const auto characters = call.arguments.take("chars");
  const auto text = call.text();
  if (!characters.string()) return Value(stripped(text, Side::kBoth));
  return Value(stripped(text, Side::kBoth, *characters.string()));
}

Value replace(const Call& call) {
  const auto text = call.text();
  const auto from = text_of(call.arguments.take("old"), call.meter);
  const auto to = text_of(call.arguments.take("new"), call.meter);
  const auto count = call.arguments.take("count").integer().value_or(-1);
  const auto places = text.size() / std::max<size_t>(from.size(), 1) + 1;
  if (to.size() > from.size()) call.meter.text(places * (to.size() - from.size()));
  return Value(replaced(text, from, to, count));
}

std::string spaces(int64_t count) {
  if (count > 256) throw Failure("an indent of more than 256 spaces");
  return std::string(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
}

Value indent(const Call& call) {
  const auto width = call.arguments.take("width");
  const bool first = call.arguments.take("first").truth();
  const bool blank = call.arguments.take("blank").truth();
  const auto margin = width.string() ? *width.string() : spaces(width.integer().value_or(4));
  const auto text = call.text() + "\n";
  const auto lines = split_lines(text, /*keep_ends=*/false);
  call.meter.text(lines.size() * margin.size());
  std::string result = first ? margin : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i > 0 && (blank || !lines[i].empty())) result += margin;
    result += lines[i];
  }
  return Value(std::move(result));
}

Value format(const Call& call) {
  return Value(percent_format(call.text(), Value::tuple(call.arguments.rest()), call.meter));
}

Value join(const Call& call) {
  const auto between = text_of(call.arguments.take("d"), call.meter);
  const auto attribute = call.arguments.take("attribute");
  std::string result;
  bool is_first = true;
  for (const auto& item : call.items()) {
    if (!std::exchange(is_first, false)) result += between;
    call.meter.text(between.size());
    result += text_of(attribute.string() ? at_path(item, *attribute.string(), call.meter) : item,
                      call.meter);
  }
  return Value(std::move(result));
}

Value to_json(const Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.arguments.take("ensure_ascii").truth();
  const auto indent = call.arguments.take("indent");
  if (indent.string() && indent.string()->size() > 256)
    throw Failure("tojson: the indent is too long");
  if (indent.string()) style.indent = *indent.string();
  if (const auto width = indent.integer()) style.indent = spaces(*width);
  if (style.indent) style.item_separator.assign(1, ',');
  if (const auto separators = call.arguments.take("separators"); separators.sequence()) {
    const auto& parts = separators.sequence()->items;
    if (parts.size() != 2 || !parts[0].string() || !parts[1].string()) {
      throw Failure("tojson: separators are two strings");
    }
    style.item_separator = *parts[0].string();
    style.key_separator = *parts[1].string();
  }
  style.sort_keys = call.arguments.take("sort_keys").truth();
  const auto margin =
      style.indent ? style.indent->size() * static_cast<size_t>(call.value.depth()) : 0;
  const auto per_item = margin + style.item_separator.size() + style.key_separator.size();
  // Each item weighs 16 at least. First without its margin: the product could be no number.
  call.meter.text(call.value.weight());
  call.meter.text(call.value.weight() * (per_item / 16));
  return Value(json_of_value(call.value, style));
}

// -- numbers --

Value to_integer(const Call& call) {
  const int64_t otherwise = call.arguments.integer("default", 0);
  const int64_t base = call.arguments.integer("base", 10);
  if (const auto integer = call.value.integer()) return Value(*integer);
  auto number = call.value.number();
  if (const auto* text = call.value.string()) {
    auto digits = stripped(*text, Side::kBoth);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t integer = 0;
    const char* begin = digits.data();
    const char* end = begin + digits.size();
    if (base < 2 || base > 36) throw Failure("int: the base is not one of 2 to 36");
    auto read = std::from_chars(begin, end, integer, static_cast<int>(base));
    if (read.ec == std::errc() && read.ptr == end) return Value(integer);
    double value = 0;
    read = std::from_chars(begin, end, value);
    if (read.ec == std::errc() && read.ptr == end) number = value;
  }
  const bool fits = number && std::abs(*number) < 9.2e18;
  return Value(fits ? static_cast<int64_t>(*number) : otherwise);
}

Value to_float(const Call& call) {
  const auto otherwise = call.arguments.take("default").number().value_or(0.0);
  if (const auto number = call.value.number()) return Value(*number);
  if (!call.value.string()) return Value(otherwise);
  const auto digits = stripped(*call.value.string(), Side::kBoth);
  double value = 0;
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  const auto read = std::from_chars(begin, end, value);
  return Value(read.ec == std::errc() && read.ptr == end ? value : otherwise);
}

Value absolute(const Call& call) {
  return less(call.value, Value(int64_t{0})) ? negative(call.value) : call.value;
}

Value rounded(const Call& call) {
  const int64_t precision = call.arguments.integer("precision", 0);
  const auto method = call.arguments.take("method");
  const auto number = call.value.number();
  if (!number || std::abs(precision) > 15) throw Failure("round: a number and at most 15 places");
  const std::string how = method.string() ? *method.string() : "common";
  if (how == "common" && call.value.integer() && precision >= 0) return call.value;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *number * scale;
  if (how == "ceil") return Value(std::ceil(scaled) / scale);
  if (how == "floor") return Value(std::floor(scaled) / scale);
  if (how != "common") throw Failure("round: the method is common, ceil or floor");
  // Through its digits, as Python does: 2.675 is less than it looks.
  double value = std::nearbyint(scaled) / scale;
  if (precision > 0) value = std::stod(fmt::format("{:.{}f}", *number, precision));
  return Value(value);
}

Value sum(const Call& call) {
  const auto attribute = call.arguments.take("attribute");
  auto total = call.arguments.take("start");
  if (total.is_undefined()) total = Value(int64_t{0});
  for (const auto& item : call.items()) {
    const auto value = attribute.string() ? at_path(item, *attribute.string(), call.meter) : item;
    total = binary(Operator::kAdd, total, value, call.meter);
  }
  return total;
}

// -- lists and dictionaries --

Value otherwise(const Call& call) {
  auto value = call.arguments.take("default_value");
  const bool any_false = call.arguments.take("boolean").truth();
  if (!call.value.is_undefined() && !(any_false && !call.value.truth())) return call.value;
  return value.is_undefined() ? Value("") : value;
}

Value length(const Call& call) { return Value(length_of(call.value, call.meter)); }

Value first(const Call& call) {
  const auto items = call.items();
  return items.empty() ? Value(Undefined{}) : items.front();
}

Value last(const Call& call) {
  const auto items = call.items();
  return items.empty() ? Value(Undefined{}) : items.back();
}

Value to_list(const Call& call) { return Value::list(call.items()); }

Value reversed(const Call& call) {
  auto items = call.items();
  std::ranges::reverse(items);
  if (!call.value.string()) return Value::generator(std::move(items));
  std::string text;
  for (const auto& item : items) text += *item.string();
  return Value(std::move(text));
}

std::vector<Value> pairs_of(const Dict& dict, Meter& meter) {
  meter.step(dict.size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries()) {
    pairs.push_back(Value::tuple({Value(key), value}));
  }
  return pairs;
}

Value items(const Call& call) {
  if (call.value.is_undefined()) return Value::generator({});
  if (!call.value.dict()) {
    throw Failure(fmt::format("items: {}, expected a dictionary", call.value.type()));
  }
  return Value::generator(pairs_of(*call.value.dict(), call.meter));
}

// What sort, unique, min and max compare: the value at a path, without case unless asked for.
struct SortKey {
  bool case_sensitive;
  Value attribute;
  Meter& meter;

  Value of(const Value& item) const {
    auto key = attribute.string() ? at_path(item, *attribute.string(), meter) : item;
    if (const auto index = attribute.integer()) key = item_of(item, Value(*index), meter);
    return key.string() && !case_sensitive ? Value(lower(*key.string())) : key;
  }
};

std::vector<Value> sorted(std::vector<Value> items, const SortKey& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& item : items) {
    auto k = key.of(item);
    // About as often as a merge sort looks at each.
    key.meter.step(16);
    for (int i = 0; i < 16; ++i) key.meter.text(k.weight());
    keyed.emplace_back(std::move(k), std::move(item));
  }
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  items.clear();
  for (auto& [k, item] : keyed) items.push_back(std::move(item));
  return items;
}

Value sort(const Call& call) {
  const bool reverse = call.arguments.take("reverse").truth();
  const bool case_sensitive = call.arguments.take("case_sensitive").truth();
  const SortKey key{case_sensitive, call.arguments.take("attribute"), call.meter};
  return Value::list(sorted(call.items(), key, reverse));
}

Value dictsort(const Call& call) {
  const bool case_sensitive = call.arguments.take("case_sensitive").truth();
  const auto by = call.arguments.take("by");
  const bool reverse = call.arguments.take("reverse").truth();
  if (!call.value.dict()) throw Failure("dictsort: expected a dictionary");
  const int64_t place = by.string() && *by.string() == "value" ? 1 : 0;
  const SortKey key{case_sensitive, Value(place), call.meter};
  return Value::list(sorted(pairs_of(*call.value.dict(), call.meter), key, reverse));
}

Value unique(const Call& call) {
  const bool case_sensitive = call.arguments.take("case_sensitive").truth();
  const SortKey key{case_sensitive, call.arguments.take("attribute"), call.meter};
  std::vector<Value> seen, result;
  uint64_t weight = 0;
  for (const auto& item : call.items()) {
    auto k = key.of(item);
    call.meter.step(seen.size() / 16);
    call.meter.text(weight);
    if (std::ranges::find(seen, k) != seen.end()) continue;
    weight += k.weight();
    seen.push_back(std::move(k));
    result.push_back(item);
  }
  return Value::generator(std::move(result));
}

template <bool largest>
Value extreme(const Call& call) {
  const bool case_sensitive = call.arguments.take("case_sensitive").truth();
  const SortKey key{case_sensitive, call.arguments.take("attribute"), call.meter};
  std::optional<std::pair<Value, Value>> best;
  for (const auto& item : call.items()) {
    auto k = key.of(item);
    call.meter.text(k.weight());
    if (!best || (largest ? less(best->first, k) : less(k, best->first))) best = {k, item};
  }
  return best ? best->second : Value(Undefined{});
}

// -- those that use others --

Value mapped(const Call& call) {
  auto arguments = call.arguments.rest();
  auto named = call.arguments.named();
  std::vector<Value> result;
  if (arguments.empty()) {
    Arguments reader("map", {}, std::move(named));
    const auto path = reader.take("attribute");
    const auto fallback = reader.take("default");
    reader.finish();
    if (path.is_undefined()) throw Failure("map: the name of a filter, or attribute=, is missing");
    for (const auto& item : call.items()) {
      auto value = path.string() ? at_path(item, *path.string(), call.meter)
                                 : item_of(item, path, call.meter);
      if (value.is_undefined() && !fallback.is_undefined()) value = fallback;
      result.push_back(std::move(value));
    }
    return Value::generator(std::move(result));
  }
  if (!arguments[0].string()) throw Failure("map: the name of a filter is a string");
  const auto name = *arguments[0].string();
  arguments.erase(arguments.begin());
  for (const auto& item : call.items()) {
    Arguments each(name, arguments, named);
    result.push_back(apply_filter(name, item, each, call.meter));
  }
  return Value::generator(std::move(result));
}

// select, reject, selectattr, rejectattr.
template <bool wanted, bool by_attribute>
Value selected(const Call& call) {
  auto arguments = call.arguments.rest();
  const auto named = call.arguments.named();
  Value path;
  if (by_attribute) {
    if (arguments.empty() || !arguments[0].string()) {
      throw Failure(fmt::format("{}: the name of an attribute is missing", call.arguments.what()));
    }
    path = arguments[0];
    arguments.erase(arguments.begin());
  }
  std::string test;
  if (!arguments.empty()) {
    if (!arguments[0].string()) throw Failure("the name of a test is a string");
    test = *arguments[0].string();
    arguments.erase(arguments.begin());
  }
  std::vector<Value> result;
  for (const auto& item : call.items()) {
    const auto value = by_attribute ? at_path(item, *path.string(), call.meter) : item;
    Arguments each(test, arguments, named);
    const bool holds = test.empty() ? value.truth() : apply_test(test, value, each, call.meter);
    if (holds == wanted) result.push_back(item);
  }
  return Value::generator(std::move(result));
}

const std::map<std::string, Run, std::less<>>& filters() {
  static const std::map<std::string, Run, std::less<>> filters = {
      {"abs", absolute},
      {"capitalize", changed_text<capitalized>},
      {"count", length},
      {"d", otherwise},
      {"default", otherwise},
      {"dictsort", dictsort},
      {"first", first},
      {"float", to_float},
      {"format", format},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", to_list},
      {"lower", changed_text<lower>},
      {"map", mapped},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", selected<false, false>},
      {"rejectattr", selected<false, true>},
      {"replace", replace},
      {"reverse", reversed},
      {"round", rounded},
      {"safe", changed_text<plain>},
      {"select", selected<true, false>},
      {"selectattr", selected<true, true>},
      {"sort", sort},
      {"string", changed_text<plain>},
      {"sum", sum},
      {"title", changed_text<titled_words>},
      {"tojson", to_json},
      {"trim", trim},
      {"unique", unique},
      {"upper", changed_text<upper>},
  };
  return filters;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, Arguments& arguments,
                   Meter& meter) {
  const auto found = filters().find(name);
  if (found == filters().end()) throw Failure(fmt::format("the filter '{}' is unknown", name));
  meter.step();
  auto result = found->second({.value = value, .arguments = arguments, .meter = meter});
  arguments.finish();
  return result;
}

}  // namespace skein::text::jinja
