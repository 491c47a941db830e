// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "skein/text/jinja/methods.h"
#include "skein/text/jinja/python_text.h"
#include "skein/text/jinja/string_format.h"

namespace skein::text::jinja {
namespace {

const char* symbol(Operator op) {
  constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_types(Operator op, const Value& a, const Value& b) {
  for (const auto* value : {&a, &b}) {
    if (const auto* undefined = value->get<Undefined>()) fail_undefined(*undefined);
  }
  throw Failure(fmt::format("'{}' between {} and {}", symbol(op), a.type(), b.type()));
}

int64_t floor_divided(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) break;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) break;
  }
  if (exponent > 0) throw Failure("an integer out of range");
  return result;
}

Value integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) throw Failure("a division by zero");
  if (divides && a == std::numeric_limits<int64_t>::min()) throw Failure("an integer out of range");
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
      result = floor_divided(a, b);
      break;
    case Operator::kModulo:
      result = a - floor_divided(a, b) * b;
      break;
    default:
      if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
      result = power(a, b);
  }
  if (overflows) throw Failure("an integer out of range");
  return Value(result);
}

Value floats(Operator op, double a, double b) {
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) throw Failure("a division by zero");
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      return Value(a / b);
    case Operator::kFloorDivide:
      return Value(std::floor(a / b));
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
      return Value(std::pow(a, b));
  }
}

// value * times, of a string or list.
Value repeated(const Value& value, int64_t times, Meter& meter) {
  times = std::max<int64_t>(times, 0);
  // No step is so small that more of them would fit.
  if (times > static_cast<int64_t>(meter.limits().steps) * 256) times = INT32_MAX;
  if (const auto* text = value.string()) {
    meter.text(text->size() * static_cast<uint64_t>(times));
    std::string result;
    for (int64_t i = 0; i < times && !text->empty(); ++i) result += *text;
    return Value(std::move(result));
  }
  const auto& sequence = *value.sequence();
  meter.step(sequence.items.size() * static_cast<uint64_t>(times));
  std::vector<Value> items;
  for (int64_t i = 0; i < times && !sequence.items.empty(); ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return Value(std::make_shared<const Sequence>(sequence.kind, std::move(items)));
}

bool is_repeatable(const Value& value) {
  return value.string() ||
         (value.sequence() && value.sequence()->kind != Sequence::Kind::kGenerator);
}

std::optional<Value> sum(const Value& a, const Value& b, Meter& meter) {
  if (const auto *x = a.string(), *y = b.string(); x && y) {
    meter.text(x->size() + y->size());
    return Value(*x + *y);
  }
  const auto *x = a.sequence(), *y = b.sequence();
  if (!x || !y || x->kind != y->kind || x->kind == Sequence::Kind::kGenerator) return std::nullopt;
  meter.step(x->items.size() + y->items.size());
  auto items = x->items;
  items.insert(items.end(), y->items.begin(), y->items.end());
  return Value(std::make_shared<const Sequence>(x->kind, std::move(items)));
}

// The places that a slice takes out of `length`, as Python finds them.
std::vector<size_t> places_of(const SliceBounds& bounds, int64_t length) {
  const int64_t step = bounds.step.value_or(1);
  if (step == 0) throw Failure("a slice with step 0");
  const int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? length - 1 : length;
  const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t at = *bound < 0 ? std::max(*bound, -length - 1) + length : *bound;
    return std::clamp(at, lowest, highest);
  };
  const int64_t begin = place(bounds.begin, step < 0 ? highest : lowest);
  const int64_t end = place(bounds.end, step < 0 ? lowest : highest);
  std::vector<size_t> places;
  for (int64_t at = begin; step < 0 ? at > end : at < end;) {
    places.push_back(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return places;
}

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto size = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") return index == 0 ? Value(Undefined{}) : loop.items[index - 1];
  if (name == "nextitem") {
    return index + 1 == size ? Value(Undefined{}) : loop.items[index + 1];
  }
  throw Failure(fmt::format("loop.{} is unknown", name));
}

// What of a value has a name: an entry, a part of `loop`, or a method.
std::optional<Value> named_part(const Value& value, const std::string& name) {
  if (const auto* undefined = value.get<Undefined>()) fail_undefined(*undefined);
  if (const auto* space = value.get<std::shared_ptr<Namespace>>()) {
    for (const auto& [key, entry] : (*space)->entries) {
      if (key == name) return entry;
    }
    return std::nullopt;
  }
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) {
    if (name != "cycle") return loop_attribute(**loop, name);
  } else if (!has_method(value, name)) {
    return std::nullopt;
  }
  return Value(std::make_shared<const Method>(Method{.receiver = value, .name = name}));
}

}  // namespace

Value binary(Operator op, const Value& a, const Value& b, Meter& meter) {
  if (const auto x = a.integer(), y = b.integer(); x && y) return integers(op, *x, *y);
  if (const auto x = a.number(), y = b.number(); x && y) return floats(op, *x, *y);
  if (op == Operator::kAdd) {
    if (auto result = sum(a, b, meter)) return *result;
  }
  if (op == Operator::kMultiply) {
    if (const auto times = b.integer(); times && is_repeatable(a))
      return repeated(a, *times, meter);
    if (const auto times = a.integer(); times && is_repeatable(b))
      return repeated(b, *times, meter);
  }
  if (op == Operator::kModulo && a.string()) return Value(percent_format(*a.string(), b, meter));
  fail_types(op, a, b);
}

bool compare(Operator op, const Value& a, const Value& b, Meter& meter) {
  if (op < Operator::kIn) meter.text(std::min(a.weight(), b.weight()));
  switch (op) {
    case Operator::kEqual:
      return a == b;
    case Operator::kNotEqual:
      return !(a == b);
    case Operator::kLess:
      return less(a, b);
    case Operator::kGreater:
      return less(b, a);
    case Operator::kLessOrEqual:
      return less(a, b) || a == b;
    case Operator::kGreaterOrEqual:
      return less(b, a) || a == b;
    case Operator::kIn:
      return contains(b, a, meter);
    default:
      return !contains(b, a, meter);
  }
}

bool contains(const Value& container, const Value& item, Meter& meter) {
  if (const auto* text = container.string()) {
    if (!item.string()) fail_types(Operator::kIn, item, container);
    meter.text(text->size());
    return text->find(*item.string()) != std::string::npos;
  }
  if (const auto* dict = container.dict()) return item.string() && dict->find(*item.string());
  if (container.is_undefined()) return false;
  if (!container.sequence()) fail_types(Operator::kIn, item, container);
  meter.text(container.weight());
  const auto items = items_of(container, meter);
  return std::ranges::find(items, item) != items.end();
}

Value negative(const Value& value) {
  if (const auto integer = value.integer()) return integers(Operator::kSubtract, 0, *integer);
  if (const auto number = value.number()) return Value(-*number);
  if (const auto* undefined = value.get<Undefined>()) fail_undefined(*undefined);
  throw Failure(fmt::format("'-' before {}", value.type()));
}

Value attribute_of(const Value& value, const std::string& name) {
  if (auto part = named_part(value, name)) return *part;
  if (const auto* dict = value.dict()) {
    if (const auto* entry = dict->find(name)) return *entry;
  }
  return Value(Undefined{&name});
}

Value item_of(const Value& value, const Value& key, Meter& meter) {
  if (const auto* name = key.string()) {
    if (const auto* dict = value.dict()) {
      if (const auto* entry = dict->find(*name)) return *entry;
    }
    return named_part(value, *name).value_or(Value(Undefined{}));
  }
  if (const auto* undefined = value.get<Undefined>()) fail_undefined(*undefined);
  const auto index = key.integer();
  if (!index) return Value(Undefined{});
  if (const auto* sequence = value.sequence()) {
    const auto size = static_cast<int64_t>(sequence->items.size());
    const int64_t at = *index < 0 ? *index + size : *index;
    const bool exists = at >= 0 && at < size && sequence->kind != Sequence::Kind::kGenerator;
    return exists ? sequence->items[static_cast<size_t>(at)] : Value(Undefined{});
  }
  if (const auto* text = value.string()) {
    if (*index == INT64_MAX) return Value(Undefined{});
    SliceBounds bounds{.begin = index, .end = *index + 1};
    if (*index == -1) bounds.end.reset();
    const auto one = slice_of(value, bounds, meter);
    const bool before = *index < 0 && -*index > length_of(std::string_view(*text));
    return one.string()->empty() || before ? Value(Undefined{}) : one;
  }
  return Value(Undefined{});
}

Value at_path(const Value& value, const std::string& path, Meter& meter) {
  auto result = value;
  for (const auto part : split(path, ".", -1)) {
    int64_t index = 0;
    const char* begin = part.data();
    const char* end = begin + part.size();
    const auto [stop, error] = std::from_chars(begin, end, index);
    result = error == std::errc() && stop == end && index >= 0
                 ? item_of(result, Value(index), meter)
                 : item_of(result, Value(part), meter);
  }
  return result;
}

Value slice_of(const Value& value, const SliceBounds& bounds, Meter& meter) {
  if (const auto* undefined = value.get<Undefined>()) fail_undefined(*undefined);
  if (const auto* text = value.string()) {
    meter.text(text->size());
    const auto is_ascii = std::ranges::all_of(*text, [](char c) { return (c & 0x80) == 0; });
    const int64_t length =
        is_ascii ? static_cast<int64_t>(text->size()) : length_of(std::string_view(*text));
    const auto places = places_of(bounds, length);
    std::string result;
    result.reserve(places.size());
    if (is_ascii) {
      for (const size_t place : places) result += (*text)[place];
    } else {
      const auto characters = characters_of(*text);
      for (const size_t place : places) result += characters[place];
    }
    return Value(std::move(result));
  }
  const auto* sequence = value.sequence();
  if (!sequence || sequence->kind == Sequence::Kind::kGenerator) return Value(Undefined{});
  const auto places = places_of(bounds, static_cast<int64_t>(sequence->items.size()));
  meter.step(places.size());
  std::vector<Value> items;
  items.reserve(places.size());
  for (const size_t place : places) items.push_back(sequence->items[place]);
  return Value(std::make_shared<const Sequence>(sequence->kind, std::move(items)));
}

std::string text_of(const Value& value, Meter& meter) {
  meter.text(value.weight());
  return to_text(value);
}

std::vector<Value> items_of(const Value& value, Meter& meter) {
  if (const auto* sequence = value.sequence()) {
    if (sequence->was_read) return {};
    sequence->was_read = sequence->kind == Sequence::Kind::kGenerator;
    meter.step(sequence->items.size());
    return sequence->items;
  }
  std::vector<Value> items;
  if (const auto* dict = value.dict()) {
    meter.step(dict->size());
    for (const auto& [key, entry] : dict->entries()) items.emplace_back(key);
  } else if (const auto* text = value.string()) {
    meter.step(text->size());
    for (const auto character : characters_of(*text)) items.emplace_back(character);
  } else if (!value.is_undefined()) {
    throw Failure(fmt::format("{} has no items to run over", value.type()));
  }
  return items;
}

int64_t length_of(const Value& value, Meter& meter) {
  if (const auto* text = value.string()) {
    meter.text(text->size());
    return length_of(std::string_view(*text));
  }
  const auto* sequence = value.sequence();
  if (sequence && sequence->kind != Sequence::Kind::kGenerator) {
    return static_cast<int64_t>(sequence->items.size());
  }
  if (const auto* dict = value.dict()) return static_cast<int64_t>(dict->size());
  if (value.is_undefined()) return 0;
  throw Failure(fmt::format("{} has no length", value.type()));
}

}  // namespace skein::text::jinja
