// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does a pattern of a tokenizer match?
//
// Thread-safe once built.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "skein/text/parts/known_patterns.h"
#include "skein/text/parts/piece.h"

namespace skein::text {

class Pattern {
 public:
  // kBest matches by hand what known_patterns.h lists.
  enum class Engine { kBest, kPcre2 };
  // In the subset of pattern_syntax.h. Throws UserError when it is not, and when PCRE2 cannot
  // compile it.
  explicit Pattern(std::string_view expression, Engine engine = Engine::kBest);
  // Matches `text`, which is not empty, and nothing else.
  static Pattern literal(std::string_view text);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // As given; of a literal the text itself.
  const std::string& expression() const { return expression_; }
  bool is_literal() const { return code_ == nullptr && finder_ == nullptr; }

  // The matches in one text (valid UTF-8), from left to right. A match may be empty, but not at the
  // end of the one before it. Both must outlive the search.
  class Search {
   public:
    Search(const Pattern& pattern, std::string_view text);
    // None: there is no more. Throws UserError when a match needs more backtracking steps than the
    // pattern is allowed, or the text takes more than half a second and 2 microseconds per byte
    // (many times what the known patterns need).
    std::optional<TokenSpan> next();

   private:
    bool find(TokenSpan& found);
    [[noreturn]] void give_up(std::string_view reason) const;
    bool is_late();

    const Pattern& pattern_;
    std::string_view text_;
    size_t from_ = 0;
    std::optional<size_t> last_end_;
    uint32_t calls_ = 0;
    double deadline_ = 0;  // 0: the clock has not been asked yet
  };

 private:
  struct Code;
  Pattern();

  std::string expression_;
  Finder finder_ = nullptr;     // of a known pattern
  std::unique_ptr<Code> code_;  // of any other one
};

}  // namespace skein::text
