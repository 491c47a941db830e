// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/pretokenizer_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "skein/core/error.h"

namespace skein::text {
namespace {

// Inside brackets.
constexpr const char* kWhitespace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr size_t kMaxPatternBytes = 4096;
constexpr int kMaxRepeat = 1000;
constexpr int kMaxGroups = 32;

constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};
constexpr std::array<std::string_view, 4> kScripts = {"Han", "Hiragana", "Katakana", "Hangul"};

bool is_ascii_punctuation(char c) {
  return static_cast<unsigned char>(c) < 0x80 && std::ispunct(static_cast<unsigned char>(c)) != 0;
}

// Reads the pattern from left to right and writes PCRE2's.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string translate() {
    alternatives(0);
    if (at_ < pattern_.size()) refuse("a ) without its (");
    return std::move(out_);
  }

 private:
  // What a quantifier would repeat.
  struct Term {
    bool can_repeat = true;
    bool has_repeat = false;
  };

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  bool accept(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }

  // Returns whether a repetition occurs inside.
  bool alternatives(int depth) {
    if (depth > kMaxGroups) refuse("groups nested deeper than 32 levels");
    bool has_repeat = false;
    while (at_ < pattern_.size() && pattern_[at_] != ')') {
      if (accept("|")) {
        out_ += '|';
        continue;
      }
      const auto inner = term(depth);
      has_repeat |= quantifier(inner) || inner.has_repeat;
    }
    return has_repeat;
  }

  Term term(int depth) {
    const char c = pattern_[at_];
    if (c == '(') return group(depth);
    if (c == '[') return character_class();
    if (c == '\\') return escape(false);
    if (c == '.' || c == '^' || c == '$') refuse(fmt::format("'{}'", c));
    if (c == '*' || c == '+' || c == '?') refuse("a repetition of nothing");
    literal();
    return {};
  }

  Term group(int depth) {
    // Elsewhere than at the start, the two engines differ on what a free-standing (?i) covers.
    if (out_.empty() && accept("(?i)")) {
      out_ += "(?i)";
      return {.can_repeat = false};
    }
    constexpr std::array<std::string_view, 5> kOpenings = {"(?:", "(?i:", "(?>", "(?=", "(?!"};
    const auto opening = std::find_if(kOpenings.begin(), kOpenings.end(),
                                      [this](std::string_view text) { return accept(text); });
    if (opening != kOpenings.end()) {
      out_ += *opening;
    } else {
      if (next_is("(?")) refuse(fmt::format("the group '{}'", pattern_.substr(at_, 4)));
      accept("(");
      out_ += "(?:";
    }
    const bool has_repeat = alternatives(depth + 1);
    if (!accept(")")) refuse("a ( without its )");
    out_ += ')';
    const bool is_look_ahead =
        opening != kOpenings.end() && (*opening == "(?=" || *opening == "(?!");
    return {.can_repeat = !is_look_ahead, .has_repeat = has_repeat};
  }

  Term character_class() {
    accept("[");
    out_ += '[';
    if (accept("^")) out_ += '^';
    if (next_is("]")) refuse("an empty class");
    while (!accept("]")) {
      if (at_ == pattern_.size()) refuse("a [ without its ]");
      if (next_is("[")) refuse("a class inside a class");
      if (next_is("&&")) refuse("an intersection of classes '&&'");
      if (pattern_[at_] == '\\') {
        escape(true);
      } else {
        literal();
      }
    }
    out_ += ']';
    return {};
  }

  Term escape(bool in_class) {
    accept("\\");
    if (at_ == pattern_.size()) refuse("a \\ at the end");
    const char c = pattern_[at_++];
    if (c == 's') {
      out_ += in_class ? std::string(kWhitespace) : fmt::format("[{}]", kWhitespace);
    } else if (c == 'S' && !in_class) {
      out_ += fmt::format("[^{}]", kWhitespace);
    } else if (c == 'd') {
      out_ += "\\p{Nd}";
    } else if (c == 'p' || c == 'P') {
      property(c);
    } else if (c == 'v') {
      out_ += "\\x{b}";  // a vertical tab here, any vertical space to PCRE2
    } else if (c == 'r' || c == 'n' || c == 't' || c == 'f' || is_ascii_punctuation(c)) {
      out_ += {'\\', c};
    } else if (c == 'u') {
      code_point();
    } else {
      at_ -= 2;
      refuse(fmt::format("'\\{}'{}", c, in_class ? " in a class" : ""));
    }
    return {};
  }

  void property(char kind) {
    const auto close = pattern_.find('}', at_);
    if (!next_is("{") || close == std::string_view::npos) refuse("\\p without {..}");
    const auto name = pattern_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (std::ranges::find(kCategories, name) != kCategories.end()) {
      out_ += fmt::format("\\{}{{{}}}", kind, name);
    } else if (std::ranges::find(kScripts, name) != kScripts.end()) {
      out_ += fmt::format("\\{}{{sc:{}}}", kind, name);  // without sc: the extensions too
    } else {
      refuse(fmt::format("the property '\\p{{{}}}'", name));
    }
  }

  void code_point() {
    const auto digits = pattern_.substr(at_, 4);
    if (digits.size() < 4 ||
        !std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c) != 0; })) {
      refuse("\\u without four hexadecimal digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 4;
  }

  // A character that stands for itself. Bytes of longer characters pass one by one.
  void literal() {
    const char c = pattern_[at_++];
    if (c == '{' || c == '}') out_ += '\\';
    out_ += c;
    while (at_ < pattern_.size() && (static_cast<unsigned char>(pattern_[at_]) & 0xC0) == 0x80) {
      out_ += pattern_[at_++];
    }
  }

  // Returns whether what precedes may now occur more than once.
  bool quantifier(const Term& repeated) {
    const size_t begin = at_;
    const bool braces = next_is("{") && repeat_count();
    if (!braces && !accept("*") && !accept("+") && !accept("?")) return false;
    const bool optional = !braces && pattern_[begin] == '?';
    if (!repeated.can_repeat) refuse("a repetition of a look-ahead or of (?i)");
    if (repeated.has_repeat && !optional) refuse("a repetition inside a repetition");
    // After braces a + is a second repetition to Oniguruma, a possessive one to PCRE2.
    if (braces && next_is("+")) refuse("'+' after '{..}'");
    if (!accept("?")) accept("+");
    if (next_is("*") || next_is("+") || next_is("?")) refuse("a repetition of a repetition");
    out_ += pattern_.substr(begin, at_ - begin);
    return !optional;
  }

  // Accepts {n}, {n,} or {n,m}.
  bool repeat_count() {
    const auto close = pattern_.find('}', at_);
    const auto inside = close == std::string_view::npos ? std::string_view()
                                                        : pattern_.substr(at_ + 1, close - at_ - 1);
    const auto comma = inside.find(',');
    const auto low = inside.substr(0, comma);
    const auto high = comma == std::string_view::npos ? low : inside.substr(comma + 1);
    const auto is_number = [](std::string_view text) {
      return text.size() <= 4 &&
             std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
    };
    if (low.empty() || !is_number(low) || !is_number(high)) refuse("an unusual '{'");
    for (const auto bound : {low, high}) {
      if (!bound.empty() && std::stoi(std::string(bound)) > kMaxRepeat) {
        refuse("a repetition of more than 1000 times");
      }
    }
    at_ = close + 1;
    return true;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw UserError(fmt::format("the pattern '{}' has {} at byte {}, which skein does not take",
                                pattern_, what, at_));
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string to_pcre2_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    throw UserError(fmt::format("a pattern of {} bytes; skein takes {} at most", pattern.size(),
                                kMaxPatternBytes));
  }
  return Translator(pattern).translate();
}

std::string quoted_pattern(std::string_view literal) {
  std::string quoted;
  for (const char c : literal) {
    if (is_ascii_punctuation(c)) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

}  // namespace skein::text
