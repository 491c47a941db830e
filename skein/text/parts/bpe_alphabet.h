// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are bytes spelled in a byte-level vocabulary?
//
// Files hold text, so each byte is written as one printable character: '!'-'~', U+00A1-U+00AC and
// U+00AE-U+00FF stand for themselves, the other 68 bytes are U+0100-U+0143 in order ("Ġ": a space).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::text {

// The characters, by byte.
const std::array<char16_t, 256>& byte_characters();

std::string_view byte_spelling(uint8_t byte);
std::string spell_bytes(std::string_view bytes);
// Writes at most two bytes for each; returns the end of what it has written.
char* spell_bytes_to(std::string_view bytes, char* to);
// The bytes that `spelling` (valid UTF-8) stands for; none when one of its characters stands for no
// byte, as in many special tokens.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace skein::text
