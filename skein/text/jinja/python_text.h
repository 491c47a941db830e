// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do Python's operations on strings give?
//
// All texts are valid UTF-8; places and lengths count characters. Upper and lower case map one
// character to one, by Unicode 14.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text::jinja {

bool is_python_space(char32_t code);

int64_t length_of(std::string_view text);
std::vector<std::string_view> characters_of(std::string_view text);

enum class Side : uint8_t { kLeft, kRight, kBoth };
// Without `characters`: white space.
std::string_view stripped(std::string_view text, Side side,
                          std::optional<std::string_view> characters = std::nullopt);

// At white space without a separator, which must not be empty. At most `limit` cuts, from the left
// or the right; negative: as many as there are.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit);
std::vector<std::string_view> split_from_right(std::string_view text,
                                               std::optional<std::string_view> separator,
                                               int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// At most `limit` times; negative: everywhere.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t limit);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);  // the first character upper, the others lower
std::string titled(std::string_view text);       // so every word, as Python finds them

enum class CharacterKind : uint8_t { kSpace, kDigit, kLetter, kLetterOrDigit };
// False for an empty text.
bool consists_of(std::string_view text, CharacterKind kind);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

// As repr() prints it, with quotes.
std::string quoted(std::string_view text);

}  // namespace skein::text::jinja
