// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "skein/text/jinja/python_text.h"

namespace skein::text::jinja {
namespace {

// Beyond it a value could not be printed, compared or freed without a deep stack.
constexpr int kMaxDepth = 100;
constexpr size_t kLinearSearch = 8;

int deeper(int depth) {
  if (depth >= kMaxDepth) {
    throw Failure(
        fmt::format("lists and dictionaries inside each other, deeper than {} levels", kMaxDepth));
  }
  return depth + 1;
}

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const auto& item : items) depth = std::max(depth, item.depth());
  return deeper(depth);
}

constexpr uint64_t kMaxWeight = uint64_t{1} << 62;
constexpr uint64_t kSmallWeight = 16;  // of a number, and beside each item

void add_weight(uint64_t& sum, uint64_t weight) { sum = std::min(kMaxWeight, sum + weight); }

uint64_t weight_of(const std::vector<Value>& items) {
  uint64_t weight = kSmallWeight;
  for (const auto& item : items) add_weight(weight, item.weight());
  return weight;
}

bool equal(const Dict& a, const Dict& b) {
  return a.size() == b.size() && std::ranges::all_of(a.entries(), [&](const Dict::Entry& entry) {
           const auto* other = b.find(entry.first);
           return other && *other == entry.second;
         });
}

std::string joined_repr(const std::vector<Value>& items) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += ", ";
    text += to_repr(item);
  }
  return text;
}

std::string repr_of(const Sequence& sequence) {
  const auto items = joined_repr(sequence.items);
  switch (sequence.kind) {
    case Sequence::Kind::kList:
      return fmt::format("[{}]", items);
    case Sequence::Kind::kTuple:
      return fmt::format("({}{})", items, sequence.items.size() == 1 ? "," : "");
    case Sequence::Kind::kGenerator:
      break;
  }
  throw Failure("a generator is printed: put `| list` behind the filter that made it");
}

std::string repr_of(const Dict& dict) {
  std::string text = "{";
  for (const auto& [key, value] : dict.entries()) {
    if (text.size() > 1) text += ", ";
    text += quoted(key) + ": " + to_repr(value);
  }
  return text + "}";
}

}  // namespace

Sequence::Sequence(Kind kind, std::vector<Value> items)
    : kind(kind),
      items(std::move(items)),
      depth(depth_of(this->items)),
      weight(weight_of(this->items)) {}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() > kLinearSearch) {
    const auto found = places_.find(std::string(key));
    return found == places_.end() ? nullptr : &entries_[found->second].second;
  }
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  return found == entries_.end() ? nullptr : &found->second;
}

void Dict::set(std::string key, Value value) {
  depth_ = std::max(depth_, deeper(value.depth()));
  add_weight(weight_, kSmallWeight + key.size() + value.weight());
  if (const auto* old = find(key)) {
    entries_[std::ranges::find_if(entries_, [&](const Entry& e) { return &e.second == old; }) -
             entries_.begin()]
        .second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kLinearSearch + 1) {
    for (size_t i = 0; i < kLinearSearch; ++i) places_.emplace(entries_[i].first, i);
  }
  if (entries_.size() > kLinearSearch) {
    places_.emplace(entries_.back().first, entries_.size() - 1);
  }
}

Value Value::list(std::vector<Value> items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::kList, std::move(items)));
}

Value Value::tuple(std::vector<Value> items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::kTuple, std::move(items)));
}

Value Value::generator(std::vector<Value> items) {
  return Value(std::make_shared<const Sequence>(Sequence::Kind::kGenerator, std::move(items)));
}

const std::string* Value::string() const {
  const auto* text = get<String>();
  return text ? text->get() : nullptr;
}

const Sequence* Value::sequence() const {
  const auto* sequence = get<std::shared_ptr<const Sequence>>();
  return sequence ? sequence->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* dict = get<std::shared_ptr<const Dict>>();
  return dict ? dict->get() : nullptr;
}

std::optional<int64_t> Value::integer() const {
  if (const auto* value = get<int64_t>()) return *value;
  if (const auto* value = get<bool>()) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* value = get<double>()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

bool Value::truth() const {
  if (const auto* value = get<bool>()) return *value;
  if (const auto* text = string()) return !text->empty();
  if (const auto* items = sequence()) {
    return items->kind == Sequence::Kind::kGenerator || !items->items.empty();
  }
  if (const auto* entries = dict()) return entries->size() > 0;
  if (const auto value = number()) return *value != 0;
  return !is_undefined() && !is_none();
}

const char* Value::type() const {
  struct Name {
    const char* operator()(const Undefined&) const { return "an undefined value"; }
    const char* operator()(const None&) const { return "none"; }
    const char* operator()(bool) const { return "a truth value"; }
    const char* operator()(int64_t) const { return "an integer"; }
    const char* operator()(double) const { return "a float"; }
    const char* operator()(const String&) const { return "a string"; }
    const char* operator()(const std::shared_ptr<const Sequence>& sequence) const {
      constexpr const char* kNames[] = {"a list", "a tuple", "a generator"};
      return kNames[static_cast<size_t>(sequence->kind)];
    }
    const char* operator()(const std::shared_ptr<const Dict>&) const { return "a dictionary"; }
    const char* operator()(const std::shared_ptr<Namespace>&) const { return "a namespace"; }
    const char* operator()(const std::shared_ptr<Loop>&) const { return "a loop"; }
    const char* operator()(Function) const { return "a function"; }
    const char* operator()(const std::shared_ptr<const Method>&) const { return "a method"; }
    const char* operator()(const MacroSyntax*) const { return "a macro"; }
  };
  return std::visit(Name{}, data_);
}

int Value::depth() const {
  if (const auto* items = sequence()) return items->depth;
  if (const auto* entries = dict()) return entries->depth();
  if (const auto* method = get<std::shared_ptr<const Method>>()) return (*method)->receiver.depth();
  return 0;
}

uint64_t Value::weight() const {
  if (const auto* text = string()) return kSmallWeight + text->size();
  if (const auto* items = sequence()) return items->weight;
  if (const auto* entries = dict()) return entries->weight();
  return kSmallWeight;
}

bool Value::same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (const auto* text = get<String>()) return *text == *other.get<String>();
  if (const auto* items = sequence()) return items == other.sequence();
  if (const auto* entries = dict()) return entries == other.dict();
  return *this == other;
}

bool operator==(const Value& a, const Value& b) {
  if (const auto *x = a.string(), *y = b.string(); x && y) return *x == *y;
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x == *y;
  if (const auto x = a.number(), y = b.number(); x && y) return *x == *y;
  if (const auto *x = a.sequence(), *y = b.sequence(); x && y) {
    if (x->kind == Sequence::Kind::kGenerator) return x == y;
    return x->kind == y->kind && x->items == y->items;
  }
  if (const auto *x = a.dict(), *y = b.dict(); x && y) return equal(*x, *y);
  if (const auto *x = a.get<std::shared_ptr<Namespace>>(), *y = b.get<std::shared_ptr<Namespace>>();
      x && y) {
    return *x == *y;
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
  if (const auto *x = a.string(), *y = b.string(); x && y) return *x < *y;
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x < *y;
  if (const auto x = a.number(), y = b.number(); x && y) return *x < *y;
  const auto *x = a.sequence(), *y = b.sequence();
  if (x && y && x->kind == y->kind && x->kind != Sequence::Kind::kGenerator) {
    const auto [i, j] = std::ranges::mismatch(x->items, y->items);
    if (i == x->items.end() || j == y->items.end()) return x->items.size() < y->items.size();
    return less(*i, *j);
  }
  if (const auto* undefined = a.get<Undefined>()) fail_undefined(*undefined);
  if (const auto* undefined = b.get<Undefined>()) fail_undefined(*undefined);
  throw Failure(fmt::format("{} and {} have no order", a.type(), b.type()));
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto* end =
      std::to_chars(buffer, std::end(buffer), value, std::chars_format::scientific).ptr;
  const auto scientific = std::string_view(buffer, end);
  int exponent = 0;
  const auto* digits = buffer + scientific.find('e') + 1;
  std::from_chars(digits + (*digits == '+' ? 1 : 0), end, exponent);
  // The bounds between which Python writes out all digits.
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  end = std::to_chars(buffer, std::end(buffer), value, std::chars_format::fixed).ptr;
  const auto fixed = std::string(static_cast<const char*>(buffer), end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string to_repr(const Value& value) {
  if (const auto* text = value.string()) return quoted(*text);
  if (const auto* flag = value.get<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = value.get<int64_t>()) return fmt::format("{}", *integer);
  if (const auto* number = value.get<double>()) return float_text(*number);
  if (const auto* sequence = value.sequence()) return repr_of(*sequence);
  if (const auto* dict = value.dict()) return repr_of(*dict);
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "Undefined";
  throw Failure(fmt::format("{} cannot be printed", value.type()));
}

std::string to_text(const Value& value) {
  if (const auto* text = value.string()) return *text;
  return value.is_undefined() ? std::string() : to_repr(value);
}

void fail_undefined(const Undefined& undefined) {
  throw Failure(undefined.name ? fmt::format("'{}' is undefined", *undefined.name)
                               : "an item that does not exist is used");
}

}  // namespace skein::text::jinja
