// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jsonl.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "skein/core/error.h"

namespace skein::text {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;

// Receives the parser's events, keeps the one string that is wanted, and says why it stopped.
// Each event answers whether to go on.
class TextHandler {
 public:
  std::optional<std::string> text;
  std::string error;

  bool null() { return value("null"); }
  bool boolean(bool) { return value("a boolean"); }
  bool number_integer(Json::number_integer_t) { return value("a number"); }
  bool number_unsigned(Json::number_unsigned_t) { return value("a number"); }
  bool number_float(Json::number_float_t, const std::string&) { return value("a number"); }
  bool binary(Json::binary_t&) { return value("binary"); }

  bool string(std::string& content) {
    if (!at_text()) return value("a string");
    text = std::move(content);
    expects_text_ = false;
    return true;
  }

  bool start_object(size_t) { return (depth_ == 0 || value("an object")) && descend(); }
  bool start_array(size_t) { return value("an array") && descend(); }
  bool end_object() { return ascend(); }
  bool end_array() { return ascend(); }

  bool key(std::string& name) {
    if (depth_ != 1) return true;
    expects_text_ = name == "text";
    if (expects_text_ && text) return stop("the key \"text\" occurs twice");
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& exception) {
    // The library's message quotes the input, which may be long or unprintable: take its kind only.
    const bool utf8 = std::string_view(exception.what()).find("UTF-8") != std::string_view::npos;
    return stop(
        fmt::format("invalid {} at byte {} of the line", utf8 ? "UTF-8" : "JSON", position));
  }

 private:
  bool at_text() const { return depth_ == 1 && expects_text_; }

  // A value that is not the wanted string.
  bool value(const char* kind) {
    if (depth_ == 0) return stop(fmt::format("expected an object with a \"text\", found {}", kind));
    if (at_text()) return stop(fmt::format("\"text\" must be a string, found {}", kind));
    return true;
  }

  bool descend() {
    if (++depth_ > kMaxDepth) return stop(fmt::format("nested deeper than {} levels", kMaxDepth));
    return true;
  }

  bool ascend() {
    --depth_;
    return true;
  }

  bool stop(std::string reason) {
    error = std::move(reason);
    return false;
  }

  int depth_ = 0;
  bool expects_text_ = false;
};

}  // namespace

std::string text_of_line(std::string_view line) {
  // The parser takes a zero byte for the end of its input and would ignore what follows.
  if (const auto zero = line.find('\0'); zero != std::string_view::npos) {
    throw IoError(fmt::format("invalid JSON at byte {} of the line: a zero byte", zero + 1));
  }
  TextHandler handler;
  if (!Json::sax_parse(line.begin(), line.end(), &handler)) throw IoError(handler.error);
  if (!handler.text) throw IoError("the object has no key \"text\"");
  return std::move(*handler.text);
}

}  // namespace skein::text
