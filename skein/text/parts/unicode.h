// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a tokenizer need to know about Unicode?
//
// UTF-8 without errors, white space, word characters, case and normal forms. The tables are those
// of Unicode 14.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::text {

// Bytes of the longest valid prefix of `text`.
size_t valid_utf8_prefix(std::string_view text);
// Throws IoError "SOURCE:LINE: invalid UTF-8 at byte N of the line" for the first place. The text
// begins with line `first_line` of its source.
void require_utf8(std::string_view text, const std::string& source, int64_t first_line = 1);
// `text` with every maximal invalid sequence replaced by U+FFFD, as Python does when it decodes
// with errors="replace".
std::string repaired_utf8(std::string_view text);

// One character, or one maximal invalid sequence, at the beginning of a text that is not empty.
struct Utf8Step {
  size_t size = 0;
  bool is_valid = false;
};
Utf8Step utf8_step(std::string_view text);

struct Character {
  char32_t code = 0;
  size_t size = 0;  // in bytes
};

// Both require valid UTF-8 that is not empty.
inline Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}
Character last_character(std::string_view text);

std::string to_utf8(char32_t code);

bool is_whitespace(char32_t code);      // the property White_Space
bool is_word_character(char32_t code);  // \w: letters, marks, decimal digits, connectors, joiners

// Bytes of white space that `text` (valid UTF-8) begins or ends with.
size_t leading_whitespace(std::string_view text);
size_t trailing_whitespace(std::string_view text);

bool is_ascii(std::string_view text);
bool is_mark(char32_t code);  // of category M
char32_t to_lower(char32_t code);

// C: composed, D: taken apart; K: characters that only look different become equal too.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Of valid UTF-8.
std::string to_normal_form(std::string_view text, NormalForm form);
// What a character is taken apart into; itself when it has no parts.
std::u32string decomposition(char32_t code, NormalForm form);
// Whether NFC surely leaves a text (valid UTF-8) as it is: all of it is Latin, CJK, Hangul
// syllables or common signs, which change nothing and join nothing before them.
bool is_settled(std::string_view text);
bool is_settled(char32_t code);
// The character that two are together in NFC and NFKC.
std::optional<char32_t> composition(char32_t first, char32_t second);
int combining_class(char32_t code);

}  // namespace skein::text
