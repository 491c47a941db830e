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

// As iconv calls it; empty: it may be UTF-8.
std::string_view other_encoding(std::string_view bytes) {
  using std::string_view_literals::operator""sv;
  if (bytes.starts_with("\xFF\xFE\0\0"sv) || bytes.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) return "UTF-16";
  if (bytes.size() < kEncodingBytes) return "";
  const auto is_zero = [&](size_t at) { return bytes[at] == '\0'; };
  if (!is_zero(0) && is_zero(1) && !is_zero(2) && is_zero(3)) return "UTF-16LE";
  if (is_zero(0) && !is_zero(1) && is_zero(2) && !is_zero(3)) return "UTF-16BE";
  return "";
}

}  // namespace

std::string text_of_line(std::string_view line) try {
  TextFinder finder;
  walk_json(line, kLimits, finder);
  if (!finder.text && !finder.row_key.empty()) {
    throw NoText(fmt::format(
        "the object has \"{}\" and no \"text\": stage=sft trains on such rows; on those "
        "with \"chosen\" and \"rejected\" dpo and rm, with a \"label\" kto",
        finder.row_key));
  }
  if (!finder.text) throw NoText("the object has no key \"text\"");
  return std::move(*finder.text);
} catch (const JsonError& error) {
  const std::string why = error.what();
  throw IoError(error.byte == 0 ? why : fmt::format("{} at byte {} of the line", why, error.byte));
}

void require_utf8(std::string_view beginning, const fs::path& path) {
  const auto encoding = other_encoding(beginning);
  if (encoding.empty()) return;
  throw IoError(
      fmt::format("{0}: the file is {1}, not UTF-8; convert it: iconv -f {1} -t UTF-8 {0} > NEW{2}",
                  path.string(), encoding, path.extension().string()));
}

}  // namespace skein::text
