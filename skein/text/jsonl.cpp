// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jsonl.h"

#include <fmt/format.h>

#include <optional>

#include "skein/core/error.h"
#include "skein/core/json.h"

namespace skein::text {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = kMaxLineBytes, .depth = 64};

// Keeps the one string that is wanted, and builds no tree of the rest. Every refusal is thrown.
class TextFinder final : public JsonEvents {
 public:
  std::optional<std::string> text;
  std::string row_key;  // of chat and instruction data; empty: none was met

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(Json::number_integer_t) override { return value("a number"); }
  bool number_unsigned(Json::number_unsigned_t) override { return value("a number"); }
  bool number_float(Json::number_float_t, const std::string&) override { return value("a number"); }

  bool string(std::string& content) override {
    if (!at_text()) return value("a string");
    text = std::move(content);
    expects_text_ = false;
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ > 0) value("an object");
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    value("an array");
    ++depth_;
    return true;
  }
  bool end_object() override { return ascend(); }
  bool end_array() override { return ascend(); }

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    expects_text_ = name == "text";
    if (expects_text_ && text) throw IoError("the key \"text\" occurs twice");
    for (const char* known : {"messages", "conversations", "instruction", "prompt"}) {
      if (name == known) row_key = name;
    }
    return true;
  }

 private:
  bool at_text() const { return depth_ == 1 && expects_text_; }

  // A value that is not the wanted string.
  bool value(const char* kind) const {
    if (depth_ == 0) {
      throw IoError(fmt::format("expected an object with a \"text\", found {}", kind));
    }
    if (at_text()) throw IoError(fmt::format("\"text\" must be a string, found {}", kind));
    return true;
  }

  bool ascend() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  bool expects_text_ = false;
};

}  // namespace

std::string text_of_line(std::string_view line) try {
  TextFinder finder;
  walk_json(line, kLimits, finder);
  if (!finder.text && !finder.row_key.empty()) {
    throw IoError(fmt::format(
        "the object has \"{}\" and no \"text\": stage=sft trains on such rows", finder.row_key));
  }
  if (!finder.text) throw IoError("the object has no key \"text\"");
  return std::move(*finder.text);
} catch (const JsonError& error) {
  const std::string why = error.what();
  throw IoError(error.byte == 0 ? why : fmt::format("{} at byte {} of the line", why, error.byte));
}

}  // namespace skein::text
