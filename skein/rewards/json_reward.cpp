// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Is a completion JSON, and does it fit a schema?
#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/rewards/kinds.h"
#include "skein/rewards/schema.h"

namespace skein::rewards {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kCompletion{.bytes = uint64_t{1} << 20, .depth = 64};
constexpr JsonLimits kSchema{.bytes = uint64_t{256} << 10, .depth = 64};

// In the last block that is fenced as such, or the whole.
std::string_view json_of(std::string_view text) {
  constexpr std::string_view fence = "```", opening = "```json";
  text = trimmed(after_thinking(text));
  const auto begin = text.rfind(opening);
  if (begin == std::string_view::npos) return text;
  const auto from = begin + opening.size();
  const auto end = text.find(fence, from);
  return end == std::string_view::npos ? text : trimmed(text.substr(from, end - from));
}

std::optional<Json> parse(std::string_view text) try {
  return parse_json(text, kCompletion);
} catch (const JsonError&) {
  return std::nullopt;
}

Schema read_schema(const std::string& path) {
  const auto text = read_file(path, kSchema.bytes);
  return {parse_json<UserError>(text, path, kSchema), path};
}

class JsonReward final : public SingleReward {
 public:
  JsonReward(const std::string& name, const Arguments& arguments)
      : SingleReward(name), column_(arguments.text("column")) {
    const auto path = arguments.text("schema");
    if (path && column_) arguments.refuse("a schema of a file, or one of a column");
    if (path) schema_.emplace(read_schema(*path));
  }

 private:
  std::optional<double> judge(const Completion& completion) override {
    if (column_ && !take_schema(completion)) return std::nullopt;
    const auto value = parse(json_of(completion.text));
    return value && (!schema_ || schema_->accepts(*value)) ? 1 : 0;
  }

  // From the row: an object, or its text. Neighbours mostly have the same.
  bool take_schema(const Completion& completion) {
    const auto* column = find_column(columns(completion), *column_);
    if (column == nullptr) return false;
    auto text = column->is_string() ? column->get<std::string>() : column->dump();
    if (schema_ && text == schema_text_) return true;
    const auto place =
        fmt::format("the reward '{}': {}: {}", name(), place_of(completion), *column_);
    schema_.emplace(parse_json<UserError>(text, place, kSchema), place);
    schema_text_ = std::move(text);
    return true;
  }

  std::optional<std::string> column_;
  std::optional<Schema> schema_;
  std::string schema_text_;  // of a column
};

}  // namespace

RewardPointer make_json_reward(const std::string& name, const Arguments& arguments) {
  return std::make_unique<JsonReward>(name, arguments);
}

}  // namespace skein::rewards
