// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do the expressions of a template compute with?
//
// Python's values as far as chat templates meet them, with Python's truth, order and printing.
// Strings are valid UTF-8 and count in characters. Lists and dictionaries never change once made,
// as in the sandbox that transformers uses; only a namespace() does.

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace skein::text::jinja {

// A template that cannot go on: the reason alone, to which the template's name and line are put.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Value;
struct MacroSyntax;  // syntax.h

// A name that nothing was given for. Prints as nothing, is false and empty; all else fails.
struct Undefined {
  const std::string* name = nullptr;  // of the template's syntax, which outlives all values
};
struct None {};

struct Sequence;
class Dict;
struct Namespace;
struct Loop;
enum class Function : uint8_t { kRange, kNamespace, kRaiseException, kStrftimeNow, kDict };
// `value.name` where the name is one of Python's methods of that type.
struct Method;

using String = std::shared_ptr<const std::string>;

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, String, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>,
                   Function, std::shared_ptr<const Method>, const MacroSyntax*>;

  Value() = default;
  template <typename T>
    requires std::is_constructible_v<Data, T>
  explicit Value(T data) : data_(std::move(data)) {}
  explicit Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  explicit Value(std::string_view text) : Value(std::string(text)) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(Dict dict);
  static Value none() { return Value(None{}); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value generator(std::vector<Value> items);

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>(); }
  bool is_none() const { return get<None>(); }
  // Null for a value of another type.
  const std::string* string() const;
  const Sequence* sequence() const;
  const Dict* dict() const;
  // Of an integer or a truth value, which Python counts as one.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;

  bool truth() const;
  // As messages call it: "a string".
  const char* type() const;
  int depth() const;
  // About the bytes that it prints as, which may be far more than it takes: a list that holds the
  // same list twice, and so on.
  uint64_t weight() const;
  // The same object, as `is sameas` asks.
  bool same(const Value& other) const;

 private:
  Data data_;
};

struct Sequence {
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kGenerator,  // what map(), select() and their like return: always true, read once, no length
  };

  Sequence(Kind kind, std::vector<Value> items);

  Kind kind;
  std::vector<Value> items;
  int depth;                      // of lists and dictionaries inside each other
  uint64_t weight;                // see Value::weight()
  mutable bool was_read = false;  // a generator, whose items are gone then
};

// In the order of insertion, as Python's. Keys are strings.
class Dict {
 public:
  using Entry = std::pair<std::string, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(std::string_view key) const;
  // Replaces the value of a key that is there, which keeps its place.
  void set(std::string key, Value value);
  int depth() const { return depth_; }
  uint64_t weight() const { return weight_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> places_;  // once there are more than a few
  int depth_ = 1;
  uint64_t weight_ = 0;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> entries;
};

// The variable `loop`.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
};

inline Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}

struct Method {
  Value receiver;
  std::string name;
};

bool operator==(const Value& a, const Value& b);
// Python's a < b. Throws Failure for types without an order.
bool less(const Value& a, const Value& b);

// What {{ value }} prints: Python's str(), nothing for an undefined value.
std::string to_text(const Value& value);
// Python's repr(), as lists and dictionaries print what they hold.
std::string to_repr(const Value& value);
std::string float_text(double value);

[[noreturn]] void fail_undefined(const Undefined& undefined);

}  // namespace skein::text::jinja
