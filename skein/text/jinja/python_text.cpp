// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::text::jinja {
namespace {

struct Character {
  char32_t code = 0;
  size_t size = 0;
};

Character first(std::string_view text) {
  utf8proc_int32_t code = 0;
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &code);
  SKEIN_CHECK(size > 0, "the text of a template is valid UTF-8");
  return {.code = static_cast<char32_t>(code), .size = static_cast<size_t>(size)};
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

Character last(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && continues(text[begin])) --begin;
  return first(text.substr(begin));
}

void append(std::string& text, char32_t code) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_cased(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

char32_t to_upper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t to_lower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

template <typename Change>
std::string changed(std::string_view text, Change&& change) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto [code, size] = first(text);
    append(result, change(code));
    text.remove_prefix(size);
  }
  return result;
}

bool is_printable(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

std::string escaped(char32_t code) {
  const auto value = static_cast<uint32_t>(code);
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (value < 0x100) return fmt::format("\\x{:02x}", value);
  return value < 0x10000 ? fmt::format("\\u{:04x}", value) : fmt::format("\\U{:08x}", value);
}

size_t space_before(std::string_view text) {  // bytes at the end
  return text.size() - stripped(text, Side::kRight).size();
}

bool ends_line(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

bool is_python_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

int64_t length_of(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return !continues(byte); });
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const size_t size = first(text).size;
    characters.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return characters;
}

std::string_view stripped(std::string_view text, Side side,
                          std::optional<std::string_view> characters) {
  const auto goes = [&](std::string_view character, char32_t code) {
    return characters ? characters->find(character) != std::string_view::npos
                      : is_python_space(code);
  };
  while (side != Side::kRight && !text.empty()) {
    const auto [code, size] = first(text);
    if (!goes(text.substr(0, size), code)) break;
    text.remove_prefix(size);
  }
  while (side != Side::kLeft && !text.empty()) {
    const auto [code, size] = last(text);
    if (!goes(text.substr(text.size() - size), code)) break;
    text.remove_suffix(size);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    for (size_t at = 0; limit != 0 && (at = text.find(*separator)) != std::string_view::npos;
         --limit) {
      parts.push_back(text.substr(0, at));
      text.remove_prefix(at + separator->size());
    }
    parts.push_back(text);
    return parts;
  }
  for (text = stripped(text, Side::kLeft); !text.empty(); text = stripped(text, Side::kLeft)) {
    size_t end = 0;
    while (end < text.size()) {
      const auto [code, size] = first(text.substr(end));
      if (is_python_space(code)) break;
      end += size;
    }
    if (limit-- == 0) end = text.size();
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_from_right(std::string_view text,
                                               std::optional<std::string_view> separator,
                                               int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    for (size_t at = 0; limit != 0 && (at = text.rfind(*separator)) != std::string_view::npos;
         --limit) {
      parts.push_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
  } else {
    for (text.remove_suffix(space_before(text)); !text.empty();
         text.remove_suffix(space_before(text))) {
      size_t begin = text.size();
      while (begin > 0) {
        const auto [code, size] = last(text.substr(0, begin));
        if (is_python_space(code)) break;
        begin -= size;
      }
      if (limit-- == 0) begin = 0;
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    }
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    size_t end = 0, next = 0;
    while (next < text.size() && next == end) {
      const auto [code, size] = first(text.substr(end));
      next = end + size;
      if (!ends_line(code)) {
        end = next;
      } else if (code == '\r' && text.substr(next).starts_with('\n')) {
        ++next;
      }
    }
    lines.push_back(text.substr(0, keep_ends ? next : end));
    text.remove_prefix(next);
  }
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t limit) {
  std::string result;
  if (limit < 0) limit = INT64_MAX;
  if (from.empty()) {  // Python puts `to` before every character and at the end
    for (const auto character : characters_of(text)) {
      if (limit-- > 0) result += to;
      result += character;
    }
    if (limit > 0) result += to;
    return result;
  }
  for (size_t at = 0; limit != 0 && (at = text.find(from)) != std::string_view::npos; --limit) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

std::string upper(std::string_view text) { return changed(text, to_upper); }
std::string lower(std::string_view text) { return changed(text, to_lower); }

std::string capitalized(std::string_view text) {
  return changed(text, [is_first = true](char32_t code) mutable {
    return std::exchange(is_first, false) ? to_upper(code) : to_lower(code);
  });
}

std::string titled(std::string_view text) {
  return changed(text, [in_word = false](char32_t code) mutable {
    return std::exchange(in_word, is_cased(code)) ? to_lower(code) : to_upper(code);
  });
}

bool consists_of(std::string_view text, CharacterKind kind) {
  const auto characters = characters_of(text);
  return !characters.empty() && std::ranges::all_of(characters, [&](std::string_view character) {
    const char32_t code = first(character).code;
    const auto is = category(code);
    const bool digit = is == UTF8PROC_CATEGORY_ND;
    const bool letter = is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_LO;
    switch (kind) {
      case CharacterKind::kSpace:
        return is_python_space(code);
      case CharacterKind::kDigit:
        return digit;
      case CharacterKind::kLetter:
        return letter;
      case CharacterKind::kLetterOrDigit:
        break;
    }
    return letter || digit;
  });
}

namespace {

bool has_case(std::string_view text, char32_t (*to_case)(char32_t)) {
  bool any = false;
  for (const auto character : characters_of(text)) {
    const char32_t code = first(character).code;
    if (!is_cased(code)) continue;
    if (to_case(code) != code) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool is_upper(std::string_view text) { return has_case(text, to_upper); }
bool is_lower(std::string_view text) { return has_case(text, to_lower); }

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool twofold = text.find('"') != std::string_view::npos;
  const char quote = single && !twofold ? '"' : '\'';
  std::string result(1, quote);
  while (!text.empty()) {
    const auto [code, size] = first(text);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      result += '\\';
      result += static_cast<char>(code);
    } else if (is_printable(code)) {
      result += text.substr(0, size);
    } else {
      result += escaped(code);
    }
    text.remove_prefix(size);
  }
  return result + quote;
}

}  // namespace skein::text::jinja
