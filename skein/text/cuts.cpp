// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/cuts.h"

#include <algorithm>
#include <array>

namespace skein::text {
namespace {

constexpr std::array<std::string_view, 3> kKnownPatterns = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

bool is_letter(unsigned char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z'); }
bool is_graphic(unsigned char c) { return '!' <= c && c <= '~'; }

// Ends with a character that is no white space: printable ASCII, or three bytes from U+3001 on.
bool ends_solid(std::string_view text) {
  if (text.empty()) return false;
  if (is_graphic(text.back())) return true;
  if (text.size() < 3) return false;
  const auto last = text.substr(text.size() - 3);
  const auto lead = static_cast<unsigned char>(last[0]);
  return lead >= 0xE3 && lead <= 0xEF && last != "\xE3\x80\x80";
}

// Starts with printable ASCII or with an ideograph.
bool starts_solid(unsigned char first) {
  return is_graphic(first) || (first >= 0xE4 && first <= 0xE9);
}

bool is_line_cut(std::string_view text, size_t at) {
  return at >= 2 && at < text.size() && text[at - 1] == '\n' &&
         ends_solid(text.substr(0, at - 1)) && starts_solid(text[at]);
}

bool is_word_cut(std::string_view text, size_t at) {
  return at >= 1 && at < text.size() && text[at] == ' ' && is_letter(text[at - 1]);
}

template <typename IsCut>
std::optional<size_t> find_cut(std::string_view text, size_t from, const IsCut& is_cut) {
  for (size_t at = from; at < text.size(); ++at) {
    if (is_cut(text, at)) return at;
  }
  return std::nullopt;
}

}  // namespace

bool is_safe_cut(std::string_view text, size_t at) {
  return is_word_cut(text, at) || is_line_cut(text, at);
}

std::optional<size_t> find_safe_cut(std::string_view text, size_t from) {
  const auto line = find_cut(text, from, is_line_cut);
  return line ? line : find_cut(text, from, is_word_cut);
}

bool has_safe_cuts(std::string_view pattern) {
  return std::ranges::count(kKnownPatterns, pattern) > 0;
}

}  // namespace skein::text
