// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/json_value.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "skein/core/json.h"
#include "skein/text/jinja/python_text.h"

namespace skein::text::jinja {
namespace {

class Builder final : public JsonEvents {
 public:
  Value take() { return std::move(root_); }

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > INT64_MAX) throw JsonError("an integer beyond 64 bits", 0);
    return add(Value(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) {
      throw JsonError("an integer beyond 64 bits", 0);
    }
    return add(Value(double{value}));
  }
  bool string(string_t& text) override { return add(Value(std::move(text))); }
  bool start_object(size_t) override { return open(/*is_object=*/true); }
  bool start_array(size_t) override { return open(/*is_object=*/false); }
  bool end_object() override {
    auto value = Value(std::move(open_.back().object));
    open_.pop_back();
    return add(std::move(value));
  }
  bool end_array() override {
    auto value = Value::list(std::move(open_.back().array));
    open_.pop_back();
    return add(std::move(value));
  }
  bool key(string_t& text) override {
    if (open_.back().object.find(text)) throw JsonError("a key twice in one object", 0);
    open_.back().key = std::move(text);
    return true;
  }

 private:
  struct Open {
    bool is_object;
    Dict object;
    std::vector<Value> array;
    std::string key;
  };

  bool open(bool is_object) {
    open_.push_back({.is_object = is_object});
    return true;
  }

  bool add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().object.set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().array.push_back(std::move(value));
    }
    return true;
  }

  Value root_;
  std::vector<Open> open_;
};

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  std::string take() { return std::move(text_); }

  void write(const Value& value) {
    if (const auto* text = value.string()) return write_string(*text);
    if (const auto* flag = value.get<bool>()) {
      text_ += *flag ? "true" : "false";
    } else if (const auto* integer = value.get<int64_t>()) {
      text_ += fmt::format("{}", *integer);
    } else if (const auto* number = value.get<double>()) {
      write_float(*number);
    } else if (value.is_none()) {
      text_ += "null";
    } else if (const auto* dict = value.dict()) {
      write_dict(*dict);
    } else if (value.sequence() && value.sequence()->kind != Sequence::Kind::kGenerator) {
      write_list(value.sequence()->items);
    } else if (const auto* undefined = value.get<Undefined>()) {
      throw Failure(fmt::format("tojson: '{}' is undefined",
                                undefined->name ? *undefined->name : "the value"));
    } else {
      throw Failure(fmt::format("tojson: {} is nothing that JSON has", value.type()));
    }
  }

 private:
  void write_float(double number) {
    if (std::isnan(number))
      text_ += "NaN";
    else if (std::isinf(number))
      text_ += number < 0 ? "-Infinity" : "Infinity";
    else
      text_ += float_text(number);
  }

  void new_line() {
    if (!style_.indent) return;
    text_ += '\n';
    for (int i = 0; i < level_; ++i) text_ += *style_.indent;
  }

  template <typename Items, typename Write>
  void write_items(char open, char close, const Items& items, Write&& write_item) {
    text_ += open;
    if (!items.empty()) {
      ++level_;
      bool is_first = true;
      for (const auto& item : items) {
        if (!std::exchange(is_first, false)) text_ += style_.item_separator;
        new_line();
        write_item(item);
      }
      --level_;
      new_line();
    }
    text_ += close;
  }

  void write_list(const std::vector<Value>& items) {
    write_items('[', ']', items, [this](const Value& item) { write(item); });
  }

  void write_dict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::sort(
          entries, {}, [](const Dict::Entry* entry) -> const std::string& { return entry->first; });
    }
    write_items('{', '}', entries, [this](const Dict::Entry* entry) {
      write_string(entry->first);
      text_ += style_.key_separator;
      write(entry->second);
    });
  }

  void write_string(std::string_view text) {
    text_ += '"';
    for (const auto character : characters_of(text)) {
      if (character.size() > 1) {
        if (style_.ensure_ascii)
          write_escape(character);
        else
          text_ += character;
        continue;
      }
      constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
      const char c = character[0];
      const size_t special = kSpecial.find(c);
      if (special != std::string_view::npos) {
        text_ += '\\';
        text_ += kNames[special];
      } else if (static_cast<unsigned char>(c) < 0x20 || (c == 0x7f && style_.ensure_ascii)) {
        text_ += fmt::format("\\u{:04x}", static_cast<int>(c));
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  void write_escape(std::string_view character) {
    utf8proc_int32_t code = 0;
    utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(character.data()),
                     static_cast<utf8proc_ssize_t>(character.size()), &code);
    if (code < 0x10000) {
      text_ += fmt::format("\\u{:04x}", code);
    } else {
      code -= 0x10000;
      text_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    }
  }

  const JsonStyle& style_;
  std::string text_;
  int level_ = 0;
};

}  // namespace

Value value_of_json(std::string_view json) {
  Builder builder;
  walk_json(json, {.bytes = uint64_t{64} << 20}, builder);
  return builder.take();
}

std::string json_of_value(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace skein::text::jinja
