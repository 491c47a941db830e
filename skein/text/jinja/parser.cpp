// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "skein/text/jinja/expression_parser.h"

namespace skein::text::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  TemplateSyntax parse() {
    number_of("loop");
    TemplateSyntax syntax;
    syntax.body = block({});
    syntax.names = take_names();
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  using Words = std::vector<std::string_view>;

  // Statements up to {% one of `ends`, whose name is the current token then; to the end without.
  Block block(const Words& ends) {
    const Level level(*this);
    Block statements;
    const int begin = current().line;
    for (;;) {
      switch (current().kind) {
        case TokenKind::kEnd:
          if (!ends.empty()) {
            throw SyntaxError{begin, fmt::format("{{% {} %}} is missing", ends.back())};
          }
          return statements;
        case TokenKind::kText:
          statements.push_back(statement(StatementKind::kText));
          statements.back().text = next().text;
          break;
        case TokenKind::kPrintBegin:
          statements.push_back(statement(StatementKind::kPrint));
          next();
          statements.back().exprs.push_back(tuple());
          expect(TokenKind::kPrintEnd, "}}");
          break;
        default:
          expect(TokenKind::kBlockBegin, "{%");
          if (std::ranges::find(ends, current().text) != ends.end()) return statements;
          statements.push_back(tag());
      }
    }
  }

  // The same, and passes the end's "{% end… %}".
  Block block_to(std::string_view end) {
    expect(TokenKind::kBlockEnd, "%}");
    auto statements = block({end});
    next();
    expect(TokenKind::kBlockEnd, "%}");
    return statements;
  }

  Statement statement(StatementKind kind) const { return {.kind = kind, .line = current().line}; }

  Statement tag() {
    const auto word = expect(TokenKind::kName, "the name of a statement");
    if (word.text == "if") return if_tag(word.line);
    if (word.text == "for") return for_tag(word.line);
    if (word.text == "set") return set_tag(word.line);
    if (word.text == "macro") return macro_tag(word.line);
    if (word.text == "generation") return generation_tag(word.line);
    if (word.text == "filter") return filter_tag(word.line);
    if (word.text == "break" || word.text == "continue") return jump_tag(word);
    throw SyntaxError{word.line,
                      fmt::format("{{% {} %}} is unknown, or has no place here; known are if, for, "
                                  "set, macro, filter, generation, break, continue and raw",
                                  word.text)};
  }

  Statement if_tag(int line) {
    Statement result{.kind = StatementKind::kIf, .line = line};
    for (;;) {
      result.exprs.push_back(tuple(Conditions::kNo));
      expect(TokenKind::kBlockEnd, "%}");
      result.blocks.push_back(block({"elif", "else", "endif"}));
      const auto word = next().text;
      if (word == "elif") continue;
      if (word == "else")
        result.blocks.push_back(block_to("endif"));
      else
        expect(TokenKind::kBlockEnd, "%}");
      return result;
    }
  }

  Statement for_tag(int line) {
    Statement result{.kind = StatementKind::kFor, .line = line};
    result.target = target(Namespaces::kNo);
    expect_name("in");
    result.exprs.push_back(tuple(Conditions::kNo));
    result.exprs.push_back(skip_name("if") ? expression() : nullptr);
    if (current().is(TokenKind::kName, "recursive")) fail("recursive loops are unknown");
    expect(TokenKind::kBlockEnd, "%}");
    {
      const Inside loop(loops_, loops_ + 1);
      const Inside scope(scopes_, scopes_ + 1);
      result.blocks.push_back(block({"else", "endfor"}));
    }
    if (next().text == "else")
      result.blocks.push_back(block_to("endfor"));
    else
      expect(TokenKind::kBlockEnd, "%}");
    return result;
  }

  Statement set_tag(int line) {
    Statement result{.kind = StatementKind::kSet, .line = line};
    result.target = target(Namespaces::kYes);
    if (skip_operator("=")) {
      result.exprs.push_back(tuple());
      expect(TokenKind::kBlockEnd, "%}");
      return result;
    }
    result.kind = StatementKind::kSetBlock;
    if (current().is(TokenKind::kOperator, "|")) result.exprs.push_back(filters(captured()));
    result.blocks.push_back(captured_block("endset"));
    return result;
  }

  Statement filter_tag(int line) {
    Statement result{.kind = StatementKind::kFilterBlock, .line = line};
    result.exprs.push_back(filters(captured(), /*first_is_bare=*/true));
    result.blocks.push_back(captured_block("endfilter"));
    return result;
  }

  // Such a block is not a part of the loop around it: Python's code for it is a function.
  Block captured_block(std::string_view end) {
    const Inside loop(loops_, 0);
    const Inside scope(scopes_, scopes_ + 1);
    return block_to(end);
  }

  Statement generation_tag(int line) {
    has_generation_ = true;
    Statement result{.kind = StatementKind::kGeneration, .line = line};
    result.blocks.push_back(captured_block("endgeneration"));
    return result;
  }

  Statement macro_tag(int line) {
    if (scopes_ > 0) fail("a macro inside a loop, block or macro is unknown: put it outside");
    Statement result{.kind = StatementKind::kMacro, .line = line};
    result.macro = std::make_unique<MacroSyntax>();
    auto& macro = *result.macro;
    macro.line = line;
    macro.name = expect(TokenKind::kName, "the macro's name").text;
    macro.name_number = number_of(macro.name);
    expect_operator("(");
    while (!skip_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      if (skip_operator(")")) break;
      macro.parameters.push_back(name_target());
      if (skip_operator("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        fail("a parameter without default behind one with");
    }
    macro.body = captured_block("endmacro");
    return result;
  }

  Statement jump_tag(const Token& word) {
    if (loops_ == 0) {
      throw SyntaxError{word.line, fmt::format("{{% {} %}} outside of a loop", word.text)};
    }
    expect(TokenKind::kBlockEnd, "%}");
    return {.kind = word.text == "break" ? StatementKind::kBreak : StatementKind::kContinue,
            .line = word.line};
  }

  ExprPtr captured() {
    auto name = make(ExprKind::kName, current().line);
    name->text = kCaptured;
    name->name = number_of(kCaptured);
    return name;
  }

  // Sets a counter while it lives.
  class Inside {
   public:
    Inside(int& counter, int value) : counter_(counter), before_(std::exchange(counter, value)) {}
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { counter_ = before_; }

   private:
    int& counter_;
    int before_;
  };

  int loops_ = 0;   // around this place, in the same function
  int scopes_ = 0;  // around this place
  bool has_generation_ = false;
};

}  // namespace

TemplateSyntax parse_template(std::string_view source) { return Parser(tokens_of(source)).parse(); }

}  // namespace skein::text::jinja
