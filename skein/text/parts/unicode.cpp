// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "skein/core/error.h"

namespace skein::text {
namespace {

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

struct Lead {
  size_t size;                      // of the whole character; 0: no character begins so
  uint8_t second_low, second_high;  // what may follow at once (no overlong forms, no surrogates)
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (uint64_t word; i + sizeof word <= text.size(); i += sizeof word) {
    std::memcpy(&word, text.data() + i, sizeof word);
    if ((word & 0x8080808080808080) != 0) break;
  }
  while (i < text.size() && byte_at(text, i) < 0x80) ++i;
  return i;
}

// Canonical order is made by swapping neighbours, in time that grows with the square of a run of
// marks. Runs that no language has are therefore sorted before; what they normalise to is the same.
constexpr size_t kLongRun = 32;

bool is_compatible(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

// Bytes that are marks, at the start of `text`, and how many marks they are.
struct MarkRun {
  size_t bytes = 0;
  size_t marks = 0;
};

MarkRun leading_marks(std::string_view text) {
  MarkRun run;
  while (run.bytes < text.size()) {
    const auto character = first_character(text.substr(run.bytes));
    if (character.code < 0x300 || combining_class(character.code) == 0) break;
    run.bytes += character.size;
    ++run.marks;
  }
  return run;
}

void append_sorted(std::string_view marks, std::string& out) {
  std::vector<char32_t> codes;
  while (!marks.empty()) {
    const auto character = first_character(marks);
    codes.push_back(character.code);
    marks.remove_prefix(character.size);
  }
  std::ranges::stable_sort(codes, {}, combining_class);
  for (const char32_t code : codes) out += to_utf8(code);
}

std::string with_long_runs_sorted(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto run = leading_marks(text);
    if (run.marks > kLongRun) {
      append_sorted(text.substr(0, run.bytes), out);
    } else {
      out += text.substr(0, run.bytes);
    }
    text.remove_prefix(run.bytes);
    if (text.empty()) break;
    const size_t next = first_character(text).size;
    out += text.substr(0, next);
    text.remove_prefix(next);
  }
  return out;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const auto lead = lead_of(byte_at(text, 0));
  if (lead.size == 0) return {1, false};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) return {i, false};
    const uint8_t low = i == 1 ? lead.second_low : 0x80, high = i == 1 ? lead.second_high : 0xBF;
    if (byte_at(text, i) < low || byte_at(text, i) > high) return {i, false};
  }
  return {lead.size, true};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t lead = byte_at(text, i);
    if (lead < 0x80) {
      i += ascii_prefix(text.substr(i));
      continue;
    }
    // Most characters of three bytes, at once: none of them is overlong or a surrogate.
    const bool is_plain = lead > 0xE0 && lead < 0xF0 && lead != 0xED && i + 3 <= text.size();
    if (is_plain && (byte_at(text, i + 1) & byte_at(text, i + 2) & 0xC0) == 0x80 &&
        ((byte_at(text, i + 1) | byte_at(text, i + 2)) & 0x40) == 0) {
      i += 3;
      continue;
    }
    const auto next = utf8_step(text.substr(i));
    if (!next.is_valid) return i;
    i += next.size;
  }
  return i;
}

void require_utf8(std::string_view text, const std::string& source, int64_t first_line) {
  const size_t bad = valid_utf8_prefix(text);
  if (bad == text.size()) return;
  const auto before = text.substr(0, bad);
  const auto line = first_line + std::count(before.begin(), before.end(), '\n');
  throw IoError(fmt::format("{}:{}: invalid UTF-8 at byte {} of the line", source, line,
                            bad - (before.rfind('\n') + 1) + 1));  // npos + 1 is 0
}

std::string repaired_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    repaired += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    repaired += "\uFFFD";
    text.remove_prefix(utf8_step(text).size);
  }
  return repaired;
}

Character last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while ((byte_at(text, begin) & 0xC0) == 0x80) --begin;
  return first_character(text.substr(begin));
}

std::string to_utf8(char32_t code) {
  std::string bytes(4, '\0');
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code),
                                         reinterpret_cast<utf8proc_uint8_t*>(bytes.data()));
  bytes.resize(static_cast<size_t>(size));
  return bytes;
}

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_character(char32_t c) {
  // Alphabetic beyond letters and marks: circled and squared Latin letters.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  if (c == 0x200C || c == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

size_t leading_whitespace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const auto character = first_character(text.substr(size));
    if (!is_whitespace(character.code)) break;
    size += character.size;
  }
  return size;
}

size_t trailing_whitespace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const auto character = last_character(text.substr(0, text.size() - size));
    if (!is_whitespace(character.code)) break;
    size += character.size;
  }
  return size;
}

bool is_ascii(std::string_view text) { return ascii_prefix(text) == text.size(); }

bool is_settled(char32_t code) {
  if (code < 0x300) return true;
  if (code >= 0x3030 && code < 0xA000) return code != 0x3099 && code != 0x309A;
  return (code >= 0x2010 && code < 0x2028) || (code >= 0x3001 && code < 0x302A) ||
         (code >= 0xAC00 && code < 0xD7A4) || (code >= 0xFF00 && code < 0xFFF0) ||
         (code >= 0x1F300 && code < 0x1FB00);
}

bool is_settled(std::string_view text) {
  for (size_t at = ascii_prefix(text); at < text.size();) {
    const auto character = first_character(text.substr(at));
    if (!is_settled(character.code)) return false;
    at += character.size;
    if (at < text.size() && byte_at(text, at) < 0x80) at += ascii_prefix(text.substr(at));
  }
  return true;
}

bool is_mark(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

char32_t to_lower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

int combining_class(char32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

std::u32string decomposition(char32_t code, NormalForm form) {
  utf8proc_int32_t parts[32];  // the longest has 18
  int boundary_class = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (is_compatible(form) ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts,
                                             std::size(parts), options, &boundary_class);
  SKEIN_CHECK(count >= 0 && count <= std::ssize(parts), utf8proc_errmsg(count));
  return {parts, parts + count};
}

std::optional<char32_t> composition(char32_t first, char32_t second) {
  utf8proc_int32_t pair[] = {static_cast<utf8proc_int32_t>(first),
                             static_cast<utf8proc_int32_t>(second)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (utf8proc_normalize_utf32(pair, std::size(pair), options) != 1) return std::nullopt;
  return static_cast<char32_t>(pair[0]);
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const auto source = with_long_runs_sorted(text);
  utf8proc_uint8_t* mapped = nullptr;
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (is_compatible(form) ? UTF8PROC_COMPAT : 0));
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(source.data()),
                                 static_cast<utf8proc_ssize_t>(source.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  SKEIN_CHECK(size >= 0, utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

}  // namespace skein::text
