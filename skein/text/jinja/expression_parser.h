// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which expression do a template's next words form? The binding of operators is jinja2's.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "skein/text/jinja/lexer.h"
#include "skein/text/jinja/syntax.h"

namespace skein::text::jinja {

class ExpressionParser {
 protected:
  enum class Conditions : uint8_t { kNo, kYes };  // may `a if b else c` stand here?
  enum class Namespaces : uint8_t { kNo, kYes };  // may `namespace.attribute` be filled?

  // `tokens` end with kEnd.
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // One level of nesting while it lives. Throws SyntaxError when there are too many.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.level_; }

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  Token expect(TokenKind kind, std::string_view what);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view text);
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view text);
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail_expected(std::string_view what) const;

  ExprPtr expression();
  // Also `a, b`: a tuple without brackets.
  ExprPtr tuple(Conditions conditions = Conditions::kYes);
  // The filters behind a value; of a {% filter %} the first comes without its bar.
  ExprPtr filters(ExprPtr value, bool first_is_bare = false);
  Target target(Namespaces namespaces);
  Target name_target();

  static ExprPtr make(ExprKind kind, int line) {
    return std::make_unique<Expr>(Expr{.kind = kind, .line = line});
  }
  int number_of(const std::string& name);
  std::unordered_map<std::string, int> take_names() { return std::move(names_); }

 private:
  // Puts a part into a node, which grows by it.
  void add(Expr& node, ExprPtr part) const;
  ExprPtr pair(ExprKind kind, ExprPtr first, ExprPtr second) const;
  ExprPtr condition_or_plain(Conditions conditions);
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr number();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr value);
  ExprPtr filters_and_tests(ExprPtr value);
  ExprPtr subscript(ExprPtr value);
  ExprPtr slice(ExprPtr value, ExprPtr begin);
  ExprPtr test(ExprPtr value);
  void arguments(Expr& call);
  bool ends_tuple() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::unordered_map<std::string, int> names_;
};

}  // namespace skein::text::jinja
