// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/known_patterns.h"

#include "skein/text/parts/character_class.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

constexpr size_t kNone = std::string_view::npos;

// A text that is looked at character by character. Behind its end lies a character of no kind.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  struct Seen {
    char32_t code = 0;
    uint8_t kinds = 0;
    size_t end = 0;  // kNone: there is no character

    bool is(int any) const { return (kinds & any) != 0; }
    bool is_line_end() const { return code == '\n' || code == '\r'; }
  };

  Seen at(size_t place) const {
    if (place >= text_.size()) return {.end = kNone};
    const auto byte = static_cast<uint8_t>(text_[place]);
    if (byte < 0x80) return {byte, classes_.of(byte), place + 1};
    const auto character = first_character(text_.substr(place));
    return {character.code, classes_.of(character.code), place + character.size};
  }

  // The end of the characters from `place` on that are of these kinds, at most so many.
  size_t end_of(int kinds, size_t place, size_t most = kNone) const {
    for (auto seen = at(place); seen.is(kinds) && most > 0; seen = at(place), --most) {
      place = seen.end;
    }
    return place;
  }
  // … that are of none of these kinds.
  size_t end_of_others(int kinds, size_t place) const {
    for (auto seen = at(place); seen.end != kNone && !seen.is(kinds); seen = at(place)) {
      place = seen.end;
    }
    return place;
  }
  // … that are line ends, or this character too.
  size_t end_of_lines(size_t place, char too = '\n') const {
    while (place < text_.size() &&
           (text_[place] == '\n' || text_[place] == '\r' || text_[place] == too)) {
      ++place;
    }
    return place;
  }

  bool is_end(size_t place) const { return place >= text_.size(); }

  // 's 't 're 've 'm 'll 'd
  size_t contraction(size_t place) const {
    if (is_end(place) || text_[place] != '\'') return kNone;
    const auto rest = text_.substr(place + 1, 2);
    for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      if (rest.starts_with(end)) return place + 1 + end.size();
    }
    return kNone;
  }
  // The same in any case, of which the long s is one.
  size_t any_contraction(size_t place) const {
    if (is_end(place) || text_[place] != '\'') return kNone;
    const auto rest = text_.substr(place + 1, 2);
    if (rest == "ſ") return place + 3;
    for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      bool is_equal = rest.size() >= end.size();
      for (size_t i = 0; is_equal && i < end.size(); ++i) is_equal = (rest[i] | 0x20) == end[i];
      if (is_equal) return place + 1 + end.size();
    }
    return kNone;
  }

  // \s+(?!\S)|\s+
  size_t spaces(size_t place) const {
    size_t end = place, before = place;
    for (auto seen = at(end); seen.is(kSpace); seen = at(end)) {
      before = end;
      end = seen.end;
    }
    if (end == place) return kNone;
    return is_end(end) || before == place ? end : before;
  }
  // \s*[\r\n]+|\s+(?!\S)|\s+
  size_t spaces_and_lines(size_t place) const {
    size_t line = kNone, end = place;
    for (auto seen = at(end); seen.is(kSpace); seen = at(end)) {
      end = seen.end;
      if (seen.is_line_end()) line = end;
    }
    return line != kNone ? line : spaces(place);
  }

 private:
  std::string_view text_;
  const CharacterClasses& classes_ = CharacterClasses::get();
};

constexpr int kWordy = kLetter | kNumber;

size_t match_gpt2(std::string_view text, size_t at) {
  const Reader reader(text);
  if (const size_t end = reader.contraction(at); end != kNone) return end;
  const auto first = reader.at(at);
  const auto second = first.code == ' ' ? reader.at(first.end) : first;
  if (second.is(kLetter)) return reader.end_of(kLetter, second.end);
  if (second.is(kNumber)) return reader.end_of(kNumber, second.end);
  if (second.end != kNone && !second.is(kSpace)) {
    return reader.end_of_others(kWordy | kSpace, second.end);
  }
  return reader.spaces(at);
}

// What Llama 3's pattern and its relatives end with:  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|…
size_t match_others(const Reader& reader, size_t at, const Reader::Seen& first, char line) {
  const auto second = first.code == ' ' ? reader.at(first.end) : first;
  if (second.end != kNone && !second.is(kWordy | kSpace)) {
    return reader.end_of_lines(reader.end_of_others(kWordy | kSpace, second.end), line);
  }
  return reader.spaces_and_lines(at);
}

template <size_t kDigits>
size_t match_llama3(std::string_view text, size_t at) {
  const Reader reader(text);
  if (const size_t end = reader.any_contraction(at); end != kNone) return end;
  const auto first = reader.at(at);
  if (first.is(kLetter)) return reader.end_of(kLetter, first.end);
  if (first.is(kNumber)) return reader.end_of(kNumber, first.end, kDigits - 1);
  if (!first.is_line_end()) {
    const auto second = reader.at(first.end);
    if (second.is(kLetter)) return reader.end_of(kLetter, second.end);
  }
  return match_others(reader, at, first, '\n');
}

// [upper]*[lower]+ or, where that fails, [upper]+[lower]*
size_t match_cased(const Reader& reader, size_t at, bool needs_lower) {
  size_t end = at, last_both = kNone;
  for (auto seen = reader.at(end); seen.is(kUpper); seen = reader.at(end)) {
    end = seen.end;
    if (seen.is(kLower)) last_both = end;
  }
  const size_t lower = reader.end_of(kLower, end);
  if (!needs_lower) return end > at ? lower : kNone;
  return lower > end ? lower : last_both;
}

size_t match_o200k(std::string_view text, size_t at) {
  const Reader reader(text);
  const auto first = reader.at(at);
  const bool may_lead = !first.is(kWordy) && !first.is_line_end();
  for (const bool needs_lower : {true, false}) {
    size_t end = may_lead ? match_cased(reader, first.end, needs_lower) : kNone;
    if (end == kNone) end = match_cased(reader, at, needs_lower);
    if (end == kNone) continue;
    const size_t contraction = reader.any_contraction(end);
    return contraction != kNone ? contraction : end;
  }
  if (first.is(kNumber)) return reader.end_of(kNumber, first.end, 2);
  return match_others(reader, at, first, '/');
}

bool is_ascii_letter(char32_t code) { return (code | 0x20) - 'a' < 26; }
bool is_ascii_punctuation(char32_t code) {
  return code > ' ' && code < 0x7F && !is_ascii_letter(code) && code - '0' >= 10;
}

size_t match_deepseek(std::string_view text, size_t at) {
  const Reader reader(text);
  const auto first = reader.at(at), second = reader.at(first.end);
  if (is_ascii_punctuation(first.code) && is_ascii_letter(second.code)) {
    size_t end = second.end;
    while (end < text.size() && is_ascii_letter(static_cast<uint8_t>(text[end]))) ++end;
    return end;
  }
  const bool may_lead = !first.is(kLetter | kPunctuation | kSymbol) && !first.is_line_end();
  if (may_lead && second.is(kLetter | kMark)) return reader.end_of(kLetter | kMark, second.end);
  if (first.is(kLetter | kMark)) return reader.end_of(kLetter | kMark, first.end);
  const auto mark = first.code == ' ' ? second : first;
  if (mark.is(kPunctuation | kSymbol)) {
    return reader.end_of_lines(reader.end_of(kPunctuation | kSymbol, mark.end));
  }
  return reader.spaces_and_lines(at);
}

size_t match_deepseek_ideographs(std::string_view text, size_t at) {
  const auto is_member = [](char32_t code) {
    return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF);
  };
  size_t end = at;
  while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0xE3) {
    const auto character = first_character(text.substr(end));
    if (!is_member(character.code)) break;
    end += character.size;
  }
  return end > at ? end : kNone;
}

// Tries one place behind the other.
template <size_t (*kMatch)(std::string_view text, size_t at)>
bool find_first(std::string_view text, size_t from, TokenSpan& found) {
  for (size_t at = from; at < text.size(); at += first_character(text.substr(at)).size) {
    const size_t end = kMatch(text, at);
    if (end == kNone) continue;
    found = {at, end};
    return true;
  }
  return false;
}

// Characters of one kind, at most so many in a row.
template <bool (*kIsOne)(const Reader::Seen&), size_t kMost>
bool find_run(std::string_view text, size_t from, TokenSpan& found) {
  const Reader reader(text);
  auto seen = reader.at(from);
  for (; seen.end != kNone && !kIsOne(seen); seen = reader.at(from)) from = seen.end;
  if (seen.end == kNone) return false;
  found = {from, from};
  for (size_t count = 0; kIsOne(seen) && count < kMost; ++count) {
    found.end = seen.end;
    seen = reader.at(found.end);
  }
  return true;
}

bool is_number(const Reader::Seen& seen) { return seen.is(kNumber); }
bool is_space(const Reader::Seen& seen) { return seen.is(kSpace); }
bool is_punctuation(const Reader::Seen& seen) {
  return seen.is(kPunctuation) || (seen.is(kSymbol) && seen.code < 0x80);
}

// Byte by byte: no part of another character is a digit.
bool find_three_digits(std::string_view text, size_t from, TokenSpan& found) {
  size_t digits = 0;
  for (size_t at = from; at < text.size(); ++at) {
    digits = text[at] >= '0' && text[at] <= '9' ? digits + 1 : 0;
    if (digits < 3) continue;
    found = {at - 2, at + 1};
    return true;
  }
  return false;
}

constexpr KnownPattern kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     find_first<match_gpt2>},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     find_first<match_llama3<3>>},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     find_first<match_llama3<1>>},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     find_first<match_o200k>},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     find_first<match_deepseek>},
    {"[一-龥\u3040-ゟ゠-ヿ]+", find_first<match_deepseek_ideographs>},
    {R"(\p{N}{1,3})", find_run<is_number, 3>},
    {R"(\p{N})", find_run<is_number, 1>},
    {R"(\p{N}+)", find_run<is_number, kNone>},
    {"[0-9][0-9][0-9]", find_three_digits},
    {"[\\p{P}$+<=>^`|~]", find_run<is_punctuation, 1>},
    {R"(\s)", find_run<is_space, 1>},
};

}  // namespace

std::span<const KnownPattern> known_patterns() { return kKnown; }

Finder known_finder(std::string_view expression) {
  for (const auto& known : kKnown) {
    if (known.expression == expression) return known.find;
  }
  return nullptr;
}

}  // namespace skein::text
