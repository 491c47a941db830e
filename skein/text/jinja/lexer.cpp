// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/lexer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "skein/text/jinja/python_text.h"

namespace skein::text::jinja {
namespace {

// Longer ones first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// As jinja2 reads a template: "\n" ends lines, and the last line's end goes.
std::string with_plain_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (source.substr(i + 1).starts_with('\n')) ++i;
      text += '\n';
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) {
      const size_t begin = next_opening();
      if (begin == std::string_view::npos) {
        emit(TokenKind::kText, source_.substr(at_));
        advance(source_.size());
      } else {
        read_opening(begin);
      }
    }
    emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string why) const { throw SyntaxError{line_, std::move(why)}; }

  void emit(TokenKind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }

  std::string_view rest() const { return source_.substr(at_); }

  void advance(size_t to) {
    const auto passed = source_.substr(at_, to - at_);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    starts_line_ = passed.ends_with('\n');
    at_ = to;
  }

  // Past all white space from `from`.
  size_t skip_space(size_t from) const {
    const auto text = source_.substr(from);
    return from + (text.size() - stripped(text, Side::kLeft).size());
  }

  size_t next_opening() const {
    size_t at = source_.find('{', at_);
    while (at != std::string_view::npos) {
      const char second = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (second == '{' || second == '%' || second == '#') return at;
      at = source_.find('{', at + 1);
    }
    return at;
  }

  // The text before a tag that begins at `begin`, and the tag's two characters and sign.
  char read_text_before(size_t begin) {
    auto text = source_.substr(at_, begin - at_);
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    if (sign == '-') {
      text = stripped(text, Side::kRight);
    } else if (sign != '+' && source_[begin + 1] != '{') {
      const size_t line = text.rfind('\n') + 1;  // 0 without one
      if ((line > 0 || starts_line_) && stripped(text.substr(line), Side::kBoth).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) emit(TokenKind::kText, text);
    advance(begin + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    return source_[begin + 1];
  }

  void read_opening(size_t begin) {
    const char kind = read_text_before(begin);
    if (kind == '#') return skip_comment();
    if (kind == '%') {
      if (const auto raw = end_of_word_tag(at_, "raw")) return read_raw(*raw);
    }
    read_tag(kind == '{' ? "}}" : "%}");
  }

  // "{% word %}" from behind its opening: where the tag's own end begins.
  std::optional<size_t> end_of_word_tag(size_t from, std::string_view word) const {
    size_t at = skip_space(from);
    if (!source_.substr(at).starts_with(word)) return std::nullopt;
    at = skip_space(at + word.size());
    const auto end = source_.substr(at);
    if (end.starts_with("%}") || end.starts_with("-%}") || end.starts_with("+%}")) return at;
    return std::nullopt;
  }

  // Past an ending such as "-%}" at `at`, with the white space that goes with it.
  size_t past_end(size_t at, std::string_view ending) const {
    const char sign = source_[at];
    if (sign == '-') return skip_space(at + 1 + ending.size());
    if (sign == '+') return at + 1 + ending.size();
    const size_t end = at + ending.size();
    return ending != "}}" && source_.substr(end).starts_with('\n') ? end + 1 : end;
  }

  void skip_comment() {
    size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail("a comment '{#' that never ends");
    if (end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) --end;
    advance(past_end(end, "#}"));
  }

  void read_raw(size_t tag_end) {
    // The newline behind {% raw %} stays.
    advance(source_[tag_end] == '-' ? skip_space(tag_end + 3) : source_.find("%}", tag_end) + 2);
    for (size_t at = at_; (at = source_.find("{%", at)) != std::string_view::npos; at += 2) {
      const size_t sign =
          at + 2 < source_.size() && (source_[at + 2] == '-' || source_[at + 2] == '+');
      const auto end = end_of_word_tag(at + 2 + sign, "endraw");
      if (!end) continue;
      read_text_before(at);
      return advance(past_end(*end, "%}"));
    }
    fail("{% raw %} without {% endraw %}");
  }

  void read_tag(std::string_view ending) {
    const bool prints = ending == "}}";
    emit(prints ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    std::string open;  // the brackets that are
    for (;;) {
      advance(skip_space(at_));
      if (at_ == source_.size()) fail(fmt::format("'{}' is missing", ending));
      const size_t sign = rest()[0] == '-' || (rest()[0] == '+' && !prints);
      if (open.empty() && rest().substr(sign).starts_with(ending)) {
        emit(prints ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        return advance(past_end(at_, ending));
      }
      read_word(open);
    }
  }

  void read_word(std::string& open) {
    const char c = rest()[0];
    if (c == '\'' || c == '"') return read_string();
    if (is_digit(c)) return read_number();
    if (starts_name(c)) {
      size_t end = at_;
      while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
      emit(TokenKind::kName, source_.substr(at_, end - at_));
      return advance(end);
    }
    for (const auto op : kOperators) {
      if (!rest().starts_with(op)) continue;
      balance(op[0], open);
      emit(TokenKind::kOperator, op);
      return advance(at_ + op.size());
    }
    fail(fmt::format("a character that no expression has: {}",
                     quoted(characters_of(rest()).front())));
  }

  void balance(char c, std::string& open) const {
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(fmt::format("a '{}' that closes nothing", c));
      open.pop_back();
    }
  }

  void read_number() {
    size_t end = at_;
    const auto skip_digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    const auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    bool is_float = false;
    skip_digits();
    if (!after_dot && source_.substr(end).starts_with('.') && digit_at(end + 1)) {
      is_float = true;
      ++end;
      skip_digits();
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + 1 + sign)) {
        is_float = true;
        end += 1 + sign;
        skip_digits();
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    emit(is_float ? TokenKind::kFloat : TokenKind::kInteger, digits);
    advance(end);
  }

  void read_string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string that never ends");
    emit(TokenKind::kString, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  // Python's escapes; a backslash before any other character stays.
  std::string unescaped(std::string_view text) const {
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        result += text[i];
        continue;
      }
      const char c = text[++i];
      if (const size_t place = kNames.find(c); place != std::string_view::npos) {
        result += kMeanings[place];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += append_code(text.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, result);
      } else if (c >= '0' && c <= '7') {
        const size_t end = std::min(text.find_first_not_of("01234567", i), i + 3);
        append_code(text.substr(i), std::min(end, text.size()) - i, 8, result);
        i = std::min(end, text.size()) - 1;
      } else if (c == 'N') {
        fail("\\N{…} in a string: write the character itself");
      } else if (c != '\n') {
        result += '\\';
        result += c;
      }
    }
    return result;
  }

  size_t append_code(std::string_view digits, size_t count, int base, std::string& result) const {
    const auto text = std::string(digits.substr(0, count));
    size_t used = 0;
    unsigned long code = 0;
    try {
      if (!text.empty() && text[0] != '-' && text[0] != '+') code = std::stoul(text, &used, base);
    } catch (const std::exception&) {
      used = 0;  // no number, as is found below
    }
    utf8proc_uint8_t bytes[4];
    if (used != count || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("an escape in a string that stands for no character");
    }
    const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
    result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    return count;
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;  // what stands before at_ ends a line, or is nothing
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  const auto plain = with_plain_newlines(source);
  return Lexer(plain).read();
}

}  // namespace skein::text::jinja
