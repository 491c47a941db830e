// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::data {
namespace {

using text::Message;

struct RoleName {
  std::string_view name, role;
};
constexpr std::string_view kFunctionCall = "function_call";
constexpr std::array kRoles = {
    RoleName{"system", "system"},       RoleName{"developer", "developer"},
    RoleName{"user", "user"},           RoleName{"human", "user"},
    RoleName{"assistant", "assistant"}, RoleName{"gpt", "assistant"},
    RoleName{"model", "assistant"},     RoleName{"tool", "tool"},
    RoleName{"observation", "tool"},    RoleName{"ipython", "tool"},
    RoleName{"function", "tool"},       RoleName{kFunctionCall, "assistant"}};
constexpr std::array<std::string_view, 6> kOwnFields = {"role",  "from",  "content",
                                                        "value", "train", "weight"};

// Of one that is misspelt, or in capitals. A name may be of any length.
std::string role_hint(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& known : kRoles) names.emplace_back(known.name);
  std::string small(name.substr(0, 32));
  std::ranges::transform(small, small.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  const auto meant = config::did_you_mean(small, names);
  return meant.empty() ? "; known are" : meant + " Known are";
}

[[noreturn]] void refuse(size_t number, const std::string& why) {
  throw IoError(fmt::format("message {}: {}", number, why));
}

const OrderedJson* field(const OrderedJson& object, std::string_view name) {
  for (const auto& [key, value] : object.get_ref<const OrderedJson::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

const OrderedJson* either(const OrderedJson& object, std::string_view name,
                          std::string_view other) {
  const auto* found = field(object, name);
  return found ? found : field(object, other);
}

std::string text_of_parts(const OrderedJson& parts, size_t number) {
  std::string text;
  for (const auto& part : parts) {
    const auto* content = part.is_object() ? field(part, "text") : nullptr;
    if (part.is_string()) content = &part;
    if (!content || !content->is_string()) {
      const auto* type = part.is_object() ? field(part, "type") : nullptr;
      refuse(number, fmt::format("its content has a part {}; only text is trained on here",
                                 type && type->is_string()
                                     ? "of type " + shown_name(type->get_ref<const std::string&>())
                                     : "without text"));
    }
    text += content->get_ref<const std::string&>();
  }
  return text;
}

std::string content_of(const OrderedJson& entry, bool may_be_absent, size_t number) {
  const auto* content = either(entry, "content", "value");
  if (!content) {
    if (may_be_absent) return {};
    refuse(number, "it has no \"content\" (or \"value\")");
  }
  if (content->is_string()) return content->get<std::string>();
  if (content->is_array()) return text_of_parts(*content, number);
  refuse(number, fmt::format("its content must be a string, found {}", kind_of(*content)));
}

std::optional<bool> trained_of(const OrderedJson& entry, size_t number) {
  if (const auto* train = field(entry, "train")) {
    if (!train->is_boolean()) refuse(number, "\"train\" must be true or false");
    return train->get<bool>();
  }
  const auto* weight = field(entry, "weight");
  if (!weight) return std::nullopt;
  if (!weight->is_number() || (*weight != 0 && *weight != 1)) {
    refuse(number, "\"weight\" must be 0 or 1");
  }
  return *weight == 1;
}

// What templates may ask for besides role and content.
OrderedJson extra_of(const OrderedJson& entry) {
  auto extra = OrderedJson::object();
  for (const auto& [key, value] : entry.get_ref<const OrderedJson::object_t&>()) {
    if (value.is_null() || std::ranges::find(kOwnFields, key) != kOwnFields.end()) continue;
    add_member(extra, key, value);
  }
  return extra;
}

// ShareGPT writes calls as JSON text: {"name", "arguments"}, or a list of them.
void move_calls(Message& message, OrderedJson& extra, size_t number) {
  constexpr const char* kExpected =
      "a function_call must be JSON text such as {\"name\": …, \"arguments\": {…}}";
  OrderedJson calls;
  try {
    calls = parse_ordered(message.content);
  } catch (const IoError&) {
    refuse(number, kExpected);
  }
  if (!calls.is_array()) calls = OrderedJson::array({std::move(calls)});
  auto list = OrderedJson::array();
  for (auto& call : calls) {
    if (!call.is_object() || !field(call, "name")) refuse(number, kExpected);
    auto entry = OrderedJson::object();
    entry["type"] = "function";
    entry["function"] = std::move(call);
    list.push_back(std::move(entry));
  }
  extra["tool_calls"] = std::move(list);
  message.content.clear();
}

}  // namespace

std::string_view kind_of(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return "null";
    case OrderedJson::value_t::object:
      return "an object";
    case OrderedJson::value_t::array:
      return "a list";
    case OrderedJson::value_t::string:
      return "a string";
    case OrderedJson::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

OrderedJson parse_tools(std::string_view text) try {
  return parse_ordered(text);
} catch (const IoError& error) {
  throw IoError(fmt::format("\"tools\" is text, but no JSON: {}", error.what()));
}

Message parse_message(const OrderedJson& entry, size_t number) {
  if (!entry.is_object()) {
    refuse(number, fmt::format("expected an object such as {{\"role\": \"user\", \"content\": "
                               "\"…\"}}, found {}",
                               kind_of(entry)));
  }
  const auto* role = either(entry, "role", "from");
  if (!role || !role->is_string()) refuse(number, "it has no \"role\" (or \"from\")");
  const auto& name = role->get_ref<const std::string&>();
  const auto known = std::ranges::find(kRoles, name, &RoleName::name);
  if (known == kRoles.end()) {
    refuse(number, fmt::format("its role is {}{} system, user, assistant and tool, and "
                               "ShareGPT's human, gpt, function_call and observation",
                               shown_name(name), role_hint(name)));
  }
  auto extra = extra_of(entry);
  Message message{.role = std::string(known->role),
                  .content = {},
                  .trained = trained_of(entry, number),
                  .extra_json = {}};
  message.content = content_of(entry, message.role == "assistant" && !extra.empty(), number);
  if (name == kFunctionCall) move_calls(message, extra, number);
  // To a template none is not "": it overrides the content there.
  const auto written = entry.find("content");
  if (written != entry.end() && written->is_null() && message.content.empty()) {
    extra["content"] = nullptr;
  }
  if (!extra.empty()) message.extra_json = extra.dump();
  return message;
}

}  // namespace skein::data
