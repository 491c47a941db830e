// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/bpe_alphabet.h"

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

constexpr size_t kCharacters = 256 + 68;

bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<char16_t, 256> make_characters() {
  std::array<char16_t, 256> characters{};
  char16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    characters[byte] = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
  }
  return characters;
}

std::array<std::string, 256> make_spellings() {
  std::array<std::string, 256> spellings;
  for (int byte = 0; byte < 256; ++byte) spellings[byte] = to_utf8(byte_characters()[byte]);
  return spellings;
}

std::array<int16_t, kCharacters> make_bytes() {
  std::array<int16_t, kCharacters> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte)
    bytes[byte_characters()[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

}  // namespace

const std::array<char16_t, 256>& byte_characters() {
  static const auto characters = make_characters();
  return characters;
}

std::string_view byte_spelling(uint8_t byte) {
  static const auto spellings = make_spellings();
  return spellings[byte];
}

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) spelling += byte_spelling(static_cast<uint8_t>(byte));
  return spelling;
}

char* spell_bytes_to(std::string_view bytes, char* to) {
  const auto& characters = byte_characters();
  for (const char byte : bytes) {
    const char16_t code = characters[static_cast<uint8_t>(byte)];
    if (code < 0x80) {
      *to++ = static_cast<char>(code);
    } else {
      *to++ = static_cast<char>(0xC0 | code >> 6);
      *to++ = static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return to;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  static const auto byte_of = make_bytes();
  std::string bytes;
  while (!spelling.empty()) {
    const auto character = first_character(spelling);
    if (character.code >= kCharacters || byte_of[character.code] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of[character.code]);
    spelling.remove_prefix(character.size);
  }
  return bytes;
}

}  // namespace skein::text
