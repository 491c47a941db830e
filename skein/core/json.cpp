// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "skein/core/error.h"

namespace skein {
namespace {

using Json = nlohmann::json;

// Of an object of a configuration file, or one whose keys keep their order: those are searched
// one by one.
constexpr size_t kMaxKeys = 10'000;
constexpr size_t kMaxShown = 60;  // bytes of a value or key in a message

std::string shortened(std::string text) {
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown - 3) + "...";
  return text;
}

// Stands between the library's parser and the events of a caller.
class Limiter final : public nlohmann::json_sax<Json> {
 public:
  Limiter(const JsonLimits& limits, JsonEvents& events) : limits_(limits), events_(events) {}

  bool null() override { return events_.null(); }
  bool boolean(bool value) override { return events_.boolean(value); }
  bool number_integer(number_integer_t value) override { return events_.number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return events_.number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (limits_.whole_numbers) throw JsonError("a number that is not whole, or too large", 0);
    return events_.number_float(value, text);
  }
  bool string(string_t& text) override { return events_.string(text); }
  bool binary(binary_t& bytes) override { return events_.binary(bytes); }
  bool start_object(size_t size) override { return descend() && events_.start_object(size); }
  bool key(string_t& text) override { return events_.key(text); }
  bool end_object() override { return ascend() && events_.end_object(); }
  bool start_array(size_t size) override { return descend() && events_.start_array(size); }
  bool end_array() override { return ascend() && events_.end_array(); }

  // The library's message quotes the text, which may be long or unprintable: its kind is enough.
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    const bool utf8 = std::string_view(error.what()).find("UTF-8") != std::string_view::npos;
    throw JsonError(utf8 ? "invalid UTF-8" : "invalid JSON", position);
  }

 private:
  bool descend() {
    if (++depth_ > limits_.depth) {
      throw JsonError(fmt::format("nested deeper than {} levels", limits_.depth), 0);
    }
    return true;
  }

  bool ascend() {
    --depth_;
    return true;
  }

  const JsonLimits& limits_;
  JsonEvents& events_;
  int depth_ = 0;
};

// Builds the tree. A list or object does not move while it is open: only the innermost grows.
template <typename Tree>
class TreeBuilder final : public JsonEvents {
 public:
  explicit TreeBuilder(size_t max_keys) : max_keys_(max_keys) {}
  Tree take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& text) override { return add(std::move(text)); }
  bool start_object(size_t) override { return open(Tree::object()); }
  bool start_array(size_t) override { return open(Tree::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    key_ = std::move(text);
    return true;
  }

 private:
  bool add(Tree value) {
    place(std::move(value));
    return true;
  }

  bool open(Tree container) {
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Tree* place(Tree value) {
    if (open_.empty()) return &(root_ = std::move(value));
    auto& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    if (parent.size() >= max_keys_) {
      throw JsonError(fmt::format("an object has more than {} keys", max_keys_), 0);
    }
    const auto [entry, is_new] = parent.emplace(key_, std::move(value));
    if (!is_new) throw JsonError(fmt::format("duplicate key '{}'", shortened(key_)), 0);
    return &*entry;
  }

  size_t max_keys_;  // of each object
  Tree root_;
  std::vector<Tree*> open_;  // innermost last
  std::string key_;          // the value that follows belongs to it
};

template <typename Tree>
Tree tree_of(std::string_view text, const JsonLimits& limits, size_t max_keys) {
  TreeBuilder<Tree> tree(max_keys);
  walk_json(text, limits, tree);
  return tree.take();
}

}  // namespace

TextPlace place_of(std::string_view text, size_t byte) {
  const auto before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto newline = before.rfind('\n');
  const auto column =
      newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return {.line = 1 + static_cast<int>(std::ranges::count(before, '\n')),
          .column = 1 + static_cast<int>(column)};
}

std::string json_message(const JsonError& error, std::string_view text, std::string_view file) {
  if (error.byte == 0) return fmt::format("{}: {}", file, error.what());
  const auto [line, column] = place_of(text, error.byte);
  return fmt::format("{}:{}:{}: {}", file, line, column, error.what());
}

bool walk_json(std::string_view text, const JsonLimits& limits, JsonEvents& events) {
  if (text.size() > limits.bytes) {
    throw JsonError(
        fmt::format("{} bytes, more than the {} that are read", text.size(), limits.bytes), 0);
  }
  // To the library a zero byte is the end of the text; what follows it would go unseen.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    throw JsonError("invalid JSON: a zero byte", zero + 1);
  }
  Limiter limiter(limits, events);
  return Json::sax_parse(text.begin(), text.end(), &limiter);
}

Json parse_json(std::string_view text, const JsonLimits& limits) {
  return tree_of<Json>(text, limits, SIZE_MAX);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  return tree_of<nlohmann::ordered_json>(text, limits, kMaxKeys);
}

std::optional<Json> json_if_valid(std::string_view text, const JsonLimits& limits) try {
  return parse_json(text, limits);
} catch (const JsonError&) {
  return std::nullopt;
}

std::optional<nlohmann::ordered_json> ordered_json_if_valid(std::string_view text,
                                                            const JsonLimits& limits) try {
  return parse_ordered_json(text, limits);
} catch (const JsonError&) {
  return std::nullopt;
}

JsonObject::JsonObject(Json object, std::string place)
    : object_(std::move(object)), place_(std::move(place)) {
  if (!object_.is_object()) refuse("not a JSON object");
}

JsonObject JsonObject::parse(std::string_view text, const std::string& file,
                             const JsonLimits& limits) try {
  return {tree_of<Json>(text, limits, kMaxKeys), file};
} catch (const JsonError& error) {
  throw UserError(json_message(error, text, file));
}

JsonObject JsonObject::read(const fs::path& path, const JsonLimits& limits) {
  return parse(read_file(path, limits.bytes), path.string(), limits);
}

const Json* JsonObject::find(const char* key) const {
  const auto entry = object_.find(key);
  return entry == object_.end() || entry->is_null() ? nullptr : &*entry;
}

bool JsonObject::is_null(const char* key) const {
  const auto entry = object_.find(key);
  return entry != object_.end() && entry->is_null();
}

std::optional<JsonObject> JsonObject::object(const char* key) const {
  const auto* entry = find(key);
  if (!entry) return std::nullopt;
  if (!entry->is_object()) refuse(fmt::format("{} is not an object", key));
  return JsonObject(*entry, fmt::format("{}: {}", place_, key));
}

void JsonObject::read(const char* key, int64_t& value) const {
  const auto* entry = find(key);
  if (!entry) return;
  const auto whole = whole_number(*entry);
  if (!whole) refuse_value(key, "an integer");
  value = *whole;
}

void JsonObject::read(const char* key, double& value) const {
  const auto* entry = find(key);
  if (!entry) return;
  if (!entry->is_number()) refuse_value(key, "a number");
  value = entry->get<double>();
}

void JsonObject::read(const char* key, bool& value) const {
  const auto* entry = find(key);
  if (!entry) return;
  if (!entry->is_boolean()) refuse_value(key, "true or false");
  value = entry->get<bool>();
}

void JsonObject::read(const char* key, std::string& value) const {
  const auto* entry = find(key);
  if (!entry) return;
  if (!entry->is_string()) refuse_value(key, "a string");
  value = entry->get<std::string>();
}

void JsonObject::refuse(const std::string& why) const {
  throw UserError(fmt::format("{}: {}", place_, why));
}

void JsonObject::refuse_value(const char* key, const std::string& expected) const {
  const auto* value = find(key);
  const auto text = value ? value->dump(-1, ' ', false, Json::error_handler_t::replace) : "null";
  refuse(fmt::format("{} is {}, expected {}", key, shortened(text), expected));
}

}  // namespace skein
