// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/module_pattern.h"

#include <fmt/format.h>

#include <array>
#include <cctype>

#include "skein/core/error.h"
#include "skein/core/pcre2.h"

namespace skein::adapter {
namespace {

using pcre2::MatchContext;
using pcre2::MatchData;
using pcre2::Regex;

std::string shown(std::string_view pattern) {
  constexpr size_t kShown = 200;
  return fmt::format("{}{}", pattern.substr(0, kShown), pattern.size() > kShown ? "…" : "");
}

// Walks over a pattern and refuses what Python and PCRE2 read differently.
class Check {
 public:
  explicit Check(std::string_view pattern) : pattern_(pattern) {}

  void run() {
    if (pattern_.size() > ModulePattern::kMaxBytes) refuse("it is too long");
    while (at_ < pattern_.size()) {
      const auto c = static_cast<unsigned char>(pattern_[at_]);
      if (c < 0x20 || c >= 0x7f) refuse("names of modules hold printable ASCII alone");
      if (c == '\\') {
        escape("dDwWsSbBA");
      } else if (c == '[') {
        character_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        repetition();
      } else {
        ++at_;
        if ((c == '*' || c == '+' || c == '?') && next_is("+")) refuse("a possessive repetition");
      }
    }
  }

 private:
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void escape(std::string_view letters) {
    if (at_ + 1 >= pattern_.size()) refuse("it ends in a backslash");
    const char c = pattern_[at_ + 1];
    if (letters.find(c) == std::string_view::npos &&
        std::ispunct(static_cast<unsigned char>(c)) == 0) {
      refuse(fmt::format("'\\{}'", c));
    }
    at_ += 2;
  }

  void character_class() {
    ++at_;
    if (next_is("^")) ++at_;
    if (next_is("]")) ++at_;  // first of all it is itself, to both
    while (!next_is("]")) {
      if (at_ >= pattern_.size()) refuse("a [ without its ]");
      if (next_is("[")) refuse("a [ inside a class: write \\[");
      if (pattern_[at_] == '\\') {
        escape("dDwWsS");
      } else {
        ++at_;
      }
    }
    ++at_;
  }

  void group() {
    constexpr std::array<std::string_view, 6> kOpenings = {"(?:",  "(?=",  "(?!",
                                                           "(?<=", "(?<!", "(?P<"};
    for (const auto opening : kOpenings) {
      if (!next_is(opening)) continue;
      at_ += opening.size();
      return;
    }
    if (next_is("(?") || next_is("(*")) refuse(fmt::format("'{}'", pattern_.substr(at_, 3)));
    ++at_;
  }

  // {n}, {n,} or {n,m}; any other brace is a literal to one of the two.
  void repetition() {
    const auto end = pattern_.find('}', at_);
    const auto inside = pattern_.substr(at_ + 1, end == std::string_view::npos ? 0 : end - at_ - 1);
    const auto comma = inside.find(',');
    const auto is_number = [](std::string_view text) {
      return text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
    };
    const auto first = inside.substr(0, comma);
    const auto second = comma == std::string_view::npos ? "" : inside.substr(comma + 1);
    if (first.empty() || !is_number(first) || !is_number(second)) {
      refuse("a brace that is no {n}, {n,} or {n,m}: write \\{");
    }
    at_ = end + 1;
    if (next_is("+")) refuse("a possessive repetition");
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(fmt::format("the pattern '{}' cannot be used: {} (at character {})",
                                shown(pattern_), why, at_ + 1));
  }

  std::string_view pattern_;
  size_t at_ = 0;
};

Regex compile(std::string_view pattern, ModulePattern::Reach reach) {
  Check(pattern).run();
  const auto whole = reach == ModulePattern::Reach::kWhole
                         ? std::string(pattern)
                         : fmt::format("(?:.*\\.)?(?:{})$", pattern);
  int error = 0;
  size_t offset = 0;
  // ENDANCHORED tries other ways to match until one ends the name, as fullmatch does.
  const uint32_t options = PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C |
                           (reach == ModulePattern::Reach::kWhole ? PCRE2_ENDANCHORED : 0);
  Regex regex(pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(whole.data()), whole.size(), options,
                            &error, &offset, nullptr));
  if (regex) return regex;
  std::array<PCRE2_UCHAR8, 128> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  throw UserError(fmt::format("the pattern '{}' cannot be used: {}", shown(pattern),
                              reinterpret_cast<const char*>(message.data())));
}

}  // namespace

struct ModulePattern::Code {
  Code(std::string_view text, Reach reach)
      : pattern(text),
        regex(compile(text, reach)),
        context(pcre2_match_context_create(nullptr)),
        data(pcre2_match_data_create_from_pattern(regex.get(), nullptr)) {
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), 16 << 10);  // KiB
  }

  std::string pattern;
  Regex regex;
  MatchContext context;
  MatchData data;
};

ModulePattern::ModulePattern(std::string_view pattern, Reach reach)
    : code_(std::make_unique<Code>(pattern, reach)) {}
ModulePattern::ModulePattern(ModulePattern&&) noexcept = default;
ModulePattern& ModulePattern::operator=(ModulePattern&&) noexcept = default;
ModulePattern::~ModulePattern() = default;

bool ModulePattern::matches(std::string_view name) const {
  const int result = pcre2_match(code_->regex.get(), reinterpret_cast<PCRE2_SPTR8>(name.data()),
                                 name.size(), 0, 0, code_->data.get(), code_->context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  throw UserError(fmt::format("the pattern '{}' takes too long on '{}': list the names instead",
                              shown(code_->pattern), shown(name)));
}

}  // namespace skein::adapter
