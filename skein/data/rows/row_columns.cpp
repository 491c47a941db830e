// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "skein/core/error.h"
#include "skein/core/json.h"

namespace skein::data {
namespace {

constexpr JsonLimits kLimits{.bytes = kMaxRowBytes, .depth = 64};
constexpr size_t kNamesShown = 6;
constexpr size_t kNameBytes = 40;

// Those that decide what a row is, and those that it consists of.
constexpr std::array<std::string_view, 22> kKnown = {
    "messages", "conversations", "prompt",    "completion", "instruction", "input",
    "output",   "history",       "system",    "tools",      "text",        "chosen",
    "rejected", "margin",        "label",     "kto_tag",    "image",       "images",
    "videos",   "audios",        "input_ids", "question"};

bool is_known(std::string_view name) { return std::ranges::find(kKnown, name) != kKnown.end(); }

void refuse_twice(std::string_view name) {
  throw IoError(fmt::format("the key {} occurs twice in one object", shown_name(name)));
}

void require_different_keys(const OrderedJson& object) {
  std::vector<std::string_view> names;
  names.reserve(object.size());
  for (const auto& [name, value] : object.get_ref<const OrderedJson::object_t&>()) {
    names.emplace_back(name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) refuse_twice(*twice);
}

// Builds the values of which `wants` says so, and everything inside of them.
class Builder : public JsonEvents {
 public:
  OrderedJson root;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& text) override { return add(std::move(text)); }
  bool start_object(size_t) override { return open(OrderedJson::object()); }
  bool start_array(size_t) override { return open(OrderedJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (skipped_ > 0) return true;
    if (open_.size() == 1) wanted_ = wants(name);
    key_ = std::move(name);
    return true;
  }

 protected:
  // Asked for each key of the outermost object.
  virtual bool wants(const std::string&) { return true; }

 private:
  bool is_wanted() const { return skipped_ == 0 && (open_.size() != 1 || wanted_); }

  bool add(OrderedJson value) {
    if (is_wanted()) place(std::move(value));
    return true;
  }

  bool open(OrderedJson container) {
    if (is_wanted()) {
      open_.push_back(place(std::move(container)));
    } else {
      ++skipped_;
    }
    return true;
  }

  bool close() {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    if (open_.back()->is_object()) require_different_keys(*open_.back());
    open_.pop_back();
    return true;
  }

  // A list or object does not move while it is open: only the innermost grows.
  OrderedJson* place(OrderedJson value) {
    if (++values_ > kMaxRowValues) {
      throw IoError(fmt::format("more than {} values", kMaxRowValues));
    }
    if (open_.empty()) return &(root = std::move(value));
    auto& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &add_member(parent, std::move(key_), std::move(value));
  }

  std::vector<OrderedJson*> open_;  // innermost last
  std::string key_;                 // the value that follows belongs to it
  bool wanted_ = true;              // the value under that key of the outermost object
  int skipped_ = 0;                 // lists and objects open inside of one that is not wanted
  size_t values_ = 0;
};

class ColumnBuilder final : public Builder {
 public:
  std::vector<std::string> names;

 private:
  bool wants(const std::string& name) override {
    if (names.size() <= kNamesShown) names.push_back(name.substr(0, kNameBytes + 1));
    return is_known(name);
  }
};

void build(std::string_view text, Builder& builder) try {
  walk_json(text, kLimits, builder);
} catch (const JsonError& error) {
  const std::string why = error.what();
  // What is no UTF-8 in rows is most often Chinese text of an older encoding.
  const auto* hint = why == "invalid UTF-8"
                         ? " (if the file has another encoding, convert it: `iconv -f GB18030 -t "
                           "UTF-8 FILE > NEW`)"
                         : "";
  throw IoError(error.byte == 0 ? why + hint
                                : fmt::format("{} at byte {} of the row{}", why, error.byte, hint));
}

}  // namespace

RowColumns::RowColumns(std::string_view row) {
  ColumnBuilder builder;
  build(row, builder);
  if (!builder.root.is_object()) throw IoError("the row is no JSON object");
  known_ = std::move(builder.root);
  names_ = std::move(builder.names);
}

const OrderedJson* RowColumns::find(std::string_view name) const {
  for (const auto& [key, value] : known_.get_ref<const OrderedJson::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

bool RowColumns::has(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end();
}

std::string RowColumns::names() const {
  if (names_.empty()) return "no column";
  std::string text;
  for (size_t i = 0; i < std::min(names_.size(), kNamesShown); ++i) {
    text += (i == 0 ? "" : ", ") + shown_name(names_[i]);
  }
  return names_.size() > kNamesShown ? text + ", …" : text;
}

OrderedJson& add_member(OrderedJson& object, std::string name, OrderedJson value) {
  return object.get_ref<OrderedJson::object_t&>()
      .emplace_back(std::move(name), std::move(value))
      .second;
}

OrderedJson parse_ordered(std::string_view text) {
  Builder builder;
  build(text, builder);
  return std::move(builder.root);
}

std::string shown_name(std::string_view name) {
  const auto is_plain = [](char letter) {
    return ' ' <= letter && letter <= '~' && letter != '"' && letter != '\\';
  };
  if (!std::ranges::all_of(name, is_plain)) return "\"?\"";
  if (name.size() <= kNameBytes) return fmt::format("\"{}\"", name);
  return fmt::format("\"{}…\"", name.substr(0, kNameBytes));
}

}  // namespace skein::data
