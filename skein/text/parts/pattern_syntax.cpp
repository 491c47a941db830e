// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include "skein/core/error.h"

namespace skein::text {
namespace {

// Inside brackets. PCRE2's own \s has U+180E too, its \w other characters.
constexpr const char* kWhitespace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Letters are also the circled and squared ones.
constexpr const char* kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
// Outside of brackets, Oniguruma counts these to the word characters too.
constexpr const char* kWordOutside = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr size_t kMaxPatternBytes = 4096;
constexpr int kMaxRepeat = 1000;
constexpr int kMaxDepth = 32;

constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};
constexpr std::array<std::string_view, 13> kScripts = {
    "Arabic", "Bopomofo", "Cyrillic", "Devanagari", "Greek", "Han", "Hangul",
    "Hebrew", "Hiragana", "Katakana", "Latin",      "Tamil", "Thai"};

bool is_ascii_punctuation(char c) {
  return static_cast<unsigned char>(c) < 0x80 && std::ispunct(static_cast<unsigned char>(c)) != 0;
}

// Characters of a class: those that stand in brackets, or match one of the expressions.
struct CharacterSet {
  std::string members;
  std::vector<std::string> others;

  bool empty() const { return members.empty() && others.empty(); }
  std::string expression() const {
    if (others.empty()) return fmt::format("[{}]", members);
    std::string alternatives = members.empty() ? "" : fmt::format("[{}]", members);
    for (const auto& other : others) alternatives += (alternatives.empty() ? "" : "|") + other;
    return fmt::format("(?:{})", alternatives);
  }
};

// Reads the pattern from left to right and writes PCRE2's.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Pcre2Pattern translate() {
    alternatives(0);
    if (at_ < pattern_.size()) refuse("a ) without its (");
    return {std::move(out_), is_nested_};
  }

 private:
  // What a quantifier would repeat.
  struct Term {
    size_t begin = 0;  // in out_
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
    if (depth > kMaxDepth) refuse("groups nested deeper than 32 levels");
    bool has_repeat = false;
    while (at_ < pattern_.size() && pattern_[at_] != ')') {
      if (accept("|")) {
        out_ += '|';
        continue;
      }
      const size_t begin = out_.size();
      auto inner = term(depth);
      inner.begin = begin;
      has_repeat |= quantifier(inner) || inner.has_repeat;
    }
    return has_repeat;
  }

  Term term(int depth) {
    const char c = pattern_[at_];
    if (c == '(') return group(depth);
    if (c == '*' || c == '+' || c == '?') refuse("a repetition of nothing");
    if (accept("[")) {
      out_ += character_class(0);
    } else if (accept(".")) {
      out_ += "[^\\n]";
    } else if (c == '\\') {
      return escape();
    } else if (accept("^")) {
      return anchor("(?m:^)");
    } else if (accept("$")) {
      return anchor("(?m:$)");
    } else {
      out_ += literal();
    }
    return {};
  }

  Term anchor(std::string_view text) {
    out_ += text;
    return {.can_repeat = false};
  }

  Term group(int depth) {
    // Elsewhere than at the start, the two engines differ on what a free-standing (?i) covers.
    if (out_.empty() && accept("(?i)")) return anchor("(?i)");
    constexpr std::array<std::string_view, 7> kOpenings = {
        "(?:", "(?i:", "(?>", "(?=", "(?!", "(?<=", "(?<!"};
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
    const bool looks_around = opening - kOpenings.begin() >= 3 && opening != kOpenings.end();
    return {.can_repeat = !looks_around, .has_repeat = has_repeat};
  }

  // Behind its [, up to and with its ].
  std::string character_class(int depth) {
    if (depth > kMaxDepth) refuse("classes nested deeper than 32 levels");
    const bool is_negated = accept("^");
    if (next_is("]")) refuse("an empty class");
    std::vector<CharacterSet> sets(1);
    while (!accept("]")) {
      if (at_ == pattern_.size()) refuse("a [ without its ]");
      if (next_is("[:")) refuse("a POSIX class");
      if (accept("[")) {
        sets.back().others.push_back(character_class(depth + 1));
      } else if (accept("&&")) {
        sets.emplace_back();
      } else if (pattern_[at_] == '\\') {
        class_escape(sets.back());
      } else {
        sets.back().members += class_literal();
      }
    }
    if (std::ranges::any_of(sets, &CharacterSet::empty)) refuse("an empty class before this place");
    return class_expression(sets, is_negated);
  }

  static std::string class_expression(const std::vector<CharacterSet>& sets, bool is_negated) {
    if (sets.size() == 1 && sets[0].others.empty()) {
      return fmt::format("[{}{}]", is_negated ? "^" : "", sets[0].members);
    }
    std::string all;
    for (size_t i = 1; i < sets.size(); ++i) all += fmt::format("(?={})", sets[i].expression());
    all += sets[0].expression();
    return is_negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  // What stands at the start of the brackets, or ends them, in PCRE2 need not do so here.
  std::string class_literal() {
    const bool needs_escape = next_is("^") || next_is("]");
    return (needs_escape ? "\\" : "") + literal();
  }

  void class_escape(CharacterSet& set) {
    accept("\\");
    if (accept("S")) {
      set.others.push_back(fmt::format("[^{}]", kWhitespace));
    } else if (accept("W")) {
      set.others.push_back(fmt::format("[^{}]", kWord));
    } else if (accept("D")) {
      set.members += "\\P{Nd}";
    } else if (accept("s")) {
      set.members += kWhitespace;
    } else if (accept("w")) {
      set.members += kWord;
    } else {
      set.members += character_escape(" in a class");
    }
  }

  Term escape() {
    accept("\\");
    for (const char c : {'s', 'S', 'w', 'W'}) {
      if (!accept({&c, 1})) continue;
      const bool is_space = c == 's' || c == 'S', is_negated = c == 'S' || c == 'W';
      out_ += fmt::format("[{}{}]", is_negated ? "^" : "",
                          is_space ? kWhitespace : fmt::format("{}{}", kWord, kWordOutside));
      return {};
    }
    if (accept("D")) {
      out_ += "\\P{Nd}";
      return {};
    }
    if (accept("b")) return anchor(word_boundary("=", "!"));
    if (accept("B")) return anchor(word_boundary("=", "="));
    if (accept("A")) return anchor("\\A");
    if (accept("z")) return anchor("\\z");
    if (accept("Z")) return anchor("\\Z");
    out_ += character_escape("");
    return {};
  }

  // Between a word character and none, or (behind and ahead alike) where there is no such place.
  static std::string word_boundary(const char* behind, const char* ahead) {
    const auto other = [](const char* sign) { return *sign == '=' ? '!' : '='; };
    const auto word = fmt::format("[{}{}]", kWord, kWordOutside);
    return fmt::format("(?:(?<{0}{4})(?{1}{4})|(?<{2}{4})(?{3}{4}))", behind, ahead, other(behind),
                       other(ahead), word);
  }

  // Behind the backslash, of one character or one property.
  std::string character_escape(std::string_view where) {
    if (at_ == pattern_.size()) refuse("a \\ at the end");
    const char c = pattern_[at_++];
    if (c == 'd') return "\\p{Nd}";
    if (c == 'p' || c == 'P') return property(c);
    if (c == 'v') return "\\x{b}";  // a vertical tab here, any vertical space to PCRE2
    if (c == 'u') return code_point(4);
    if (c == 'x') return accept("{") ? code_point_in_braces() : ascii_code();
    if (c == 'r' || c == 'n' || c == 't' || c == 'f' || is_ascii_punctuation(c)) return {'\\', c};
    at_ -= 2;
    refuse(fmt::format("'\\{}'{}", c, where));
  }

  std::string property(char kind) {
    const auto close = pattern_.find('}', at_);
    if (!next_is("{") || close == std::string_view::npos) refuse("\\p without {..}");
    const auto name = pattern_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (std::ranges::find(kCategories, name) != kCategories.end()) {
      return fmt::format("\\{}{{{}}}", kind, name);
    }
    if (std::ranges::find(kScripts, name) != kScripts.end()) {
      return fmt::format("\\{}{{sc:{}}}", kind, name);  // without sc: the extensions too
    }
    refuse(fmt::format("the property '\\p{{{}}}'", name));
  }

  std::string code_point(size_t count) {
    const auto digits = pattern_.substr(at_, count);
    if (digits.empty() || digits.size() < count ||
        !std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c) != 0; })) {
      refuse("a character's number without its hexadecimal digits");
    }
    at_ += count;
    return fmt::format("\\x{{{}}}", digits);
  }

  std::string code_point_in_braces() {
    const auto close = pattern_.find('}', at_);
    if (close == std::string_view::npos || close - at_ > 6) refuse("an unusual \\x{..}");
    auto code = code_point(close - at_);
    accept("}");
    return code;
  }

  // Beyond ASCII, \xHH is a byte and no character.
  std::string ascii_code() {
    if (at_ < pattern_.size() && pattern_[at_] > '7') refuse("\\x beyond 7F");
    return code_point(2);
  }

  // A character that stands for itself.
  std::string literal() {
    const size_t begin = at_++;
    while (at_ < pattern_.size() && (static_cast<unsigned char>(pattern_[at_]) & 0xC0) == 0x80) {
      ++at_;
    }
    const auto text = pattern_.substr(begin, at_ - begin);
    return fmt::format("{}{}", text == "{" || text == "}" || text == "]" ? "\\" : "", text);
  }

  // Returns whether what precedes may now occur more than once.
  bool quantifier(const Term& repeated) {
    const size_t begin = at_;
    const auto braces = next_is("{") ? repeat_count() : "";
    if (braces.empty() && !accept("*") && !accept("+") && !accept("?")) return false;
    const bool optional = braces.empty() && pattern_[begin] == '?';
    if (!repeated.can_repeat) refuse("a repetition of a place or of (?i)");
    is_nested_ |= repeated.has_repeat && !optional;
    out_ += braces.empty() ? pattern_.substr(begin, at_ - begin) : braces;
    suffix(repeated, braces);
    if (next_is("*") || next_is("+") || next_is("?")) refuse("a repetition of a repetition");
    return !optional;
  }

  // Lazy or possessive. After braces a + repeats once more, and after {n} a ? makes it optional.
  void suffix(const Term& repeated, const std::string& braces) {
    const bool is_exact = !braces.empty() && braces.find(',') == std::string::npos;
    const char* sign = accept("?") ? "?" : accept("+") ? "+" : "";
    if (!braces.empty() && (*sign == '+' || (*sign == '?' && is_exact))) {
      out_.insert(repeated.begin, "(?:");
      out_ += ')';
      is_nested_ |= *sign == '+';
    }
    out_ += sign;
  }

  // Accepts {n}, {n,}, {n,m} or {,m}, and returns it with both numbers that it needs.
  std::string repeat_count() {
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
    if ((low.empty() && high.empty()) || !is_number(low) || !is_number(high)) {
      refuse("an unusual '{'");
    }
    for (const auto bound : {low, high}) {
      if (!bound.empty() && std::stoi(std::string(bound)) > kMaxRepeat) {
        refuse("a repetition of more than 1000 times");
      }
    }
    at_ = close + 1;
    return fmt::format("{{{}{}}}", low.empty() ? "0" : "", inside);
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw UserError(fmt::format("the pattern '{}' has {} at byte {}, which skein does not take",
                                pattern_, what, at_));
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  bool is_nested_ = false;
};

}  // namespace

Pcre2Pattern to_pcre2_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    throw UserError(fmt::format("a pattern of {} bytes; skein takes {} at most", pattern.size(),
                                kMaxPatternBytes));
  }
  return Translator(pattern).translate();
}

}  // namespace skein::text
