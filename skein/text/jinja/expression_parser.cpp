// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace skein::text::jinja {
namespace {

constexpr int kMaxLevels = 64;
constexpr int kMaxHeight = 500;  // `a + b + …` with so many operators is a tree of this height

struct Spelling {
  std::string_view text;
  Operator op;
};

std::optional<Operator> find(std::initializer_list<Spelling> spellings, const Token& token) {
  if (token.kind != TokenKind::kOperator) return std::nullopt;
  for (const auto& spelling : spellings) {
    if (spelling.text == token.text) return spelling.op;
  }
  return std::nullopt;
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kText:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text.substr(0, 40));
  }
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser.level_ == kMaxLevels) {
    parser.fail(
        fmt::format("brackets and blocks inside each other, deeper than {} levels", kMaxLevels));
  }
  ++parser.level_;
}

Token ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail_expected(what);
  return next();
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_expected(text);
}

bool ExpressionParser::skip_name(std::string_view name) {
  const bool is = current().is(TokenKind::kName, name);
  if (is) next();
  return is;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  const bool is = current().is(TokenKind::kOperator, text);
  if (is) next();
  return is;
}

void ExpressionParser::fail(const std::string& why) const {
  throw SyntaxError{current().line, why};
}

void ExpressionParser::fail_expected(std::string_view what) const {
  fail(fmt::format("expected {}, found {}", what, shown(current())));
}

int ExpressionParser::number_of(const std::string& name) {
  return names_.emplace(name, static_cast<int>(names_.size())).first->second;
}

void ExpressionParser::add(Expr& node, ExprPtr part) const {
  if (part) node.height = std::max(node.height, part->height + 1);
  if (node.height > kMaxHeight) fail("an expression with too many parts");
  node.parts.push_back(std::move(part));
}

ExprPtr ExpressionParser::pair(ExprKind kind, ExprPtr first, ExprPtr second) const {
  auto node = make(kind, first->line);
  add(*node, std::move(first));
  add(*node, std::move(second));
  return node;
}

bool ExpressionParser::ends_tuple() const {
  const auto& token = current();
  return token.kind == TokenKind::kPrintEnd || token.kind == TokenKind::kBlockEnd ||
         token.is(TokenKind::kOperator, ")") || token.is(TokenKind::kName, "in");
}

ExprPtr ExpressionParser::tuple(Conditions conditions) {
  auto first = condition_or_plain(conditions);
  if (!current().is(TokenKind::kOperator, ",")) return first;
  auto node = make(ExprKind::kTuple, first->line);
  add(*node, std::move(first));
  while (skip_operator(",") && !ends_tuple()) add(*node, condition_or_plain(conditions));
  return node;
}

ExprPtr ExpressionParser::expression() { return condition_or_plain(Conditions::kYes); }

ExprPtr ExpressionParser::condition_or_plain(Conditions conditions) {
  const Level level(*this);
  auto value = either();
  while (conditions == Conditions::kYes && skip_name("if")) {
    auto node = pair(ExprKind::kCondition, std::move(value), either());
    add(*node, skip_name("else") ? expression() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExprPtr ExpressionParser::either() {
  auto value = both();
  while (skip_name("or")) value = pair(ExprKind::kOr, std::move(value), both());
  return value;
}

ExprPtr ExpressionParser::both() {
  auto value = negation();
  while (skip_name("and")) value = pair(ExprKind::kAnd, std::move(value), negation());
  return value;
}

ExprPtr ExpressionParser::negation() {
  if (!current().is(TokenKind::kName, "not")) return comparison();
  const Level level(*this);
  auto node = make(ExprKind::kNot, next().line);
  add(*node, negation());
  return node;
}

ExprPtr ExpressionParser::comparison() {
  auto result = sum();  // or a comparison that begins with it
  bool compares = false;
  for (;;) {
    auto op = find({{"==", Operator::kEqual},
                    {"!=", Operator::kNotEqual},
                    {"<", Operator::kLess},
                    {"<=", Operator::kLessOrEqual},
                    {">", Operator::kGreater},
                    {">=", Operator::kGreaterOrEqual}},
                   current());
    if (op) {
      next();
    } else if (skip_name("in")) {
      op = Operator::kIn;
    } else if (current().is(TokenKind::kName, "not") &&
               tokens_[at_ + 1].is(TokenKind::kName, "in")) {
      next();
      next();
      op = Operator::kNotIn;
    } else {
      return result;
    }
    if (!std::exchange(compares, true)) {
      auto comparison = make(ExprKind::kCompare, result->line);
      add(*comparison, std::move(result));
      result = std::move(comparison);
    }
    result->operators.push_back(*op);
    add(*result, sum());
  }
}

ExprPtr ExpressionParser::sum() {
  auto value = concatenation();
  while (const auto op = find({{"+", Operator::kAdd}, {"-", Operator::kSubtract}}, current())) {
    next();
    value = pair(ExprKind::kBinary, std::move(value), concatenation());
    value->operators = {*op};
  }
  return value;
}

ExprPtr ExpressionParser::concatenation() {
  auto value = product();
  if (!current().is(TokenKind::kOperator, "~")) return value;
  auto node = make(ExprKind::kConcat, value->line);
  add(*node, std::move(value));
  while (skip_operator("~")) add(*node, product());
  return node;
}

ExprPtr ExpressionParser::product() {
  auto value = power();
  while (const auto op = find({{"*", Operator::kMultiply},
                               {"/", Operator::kDivide},
                               {"//", Operator::kFloorDivide},
                               {"%", Operator::kModulo}},
                              current())) {
    next();
    value = pair(ExprKind::kBinary, std::move(value), power());
    value->operators = {*op};
  }
  return value;
}

ExprPtr ExpressionParser::power() {
  auto value = unary(/*with_filters=*/true);
  while (skip_operator("**")) {
    value = pair(ExprKind::kBinary, std::move(value), unary(/*with_filters=*/true));
    value->operators = {Operator::kPower};
  }
  return value;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  ExprPtr node;
  const bool minus = current().is(TokenKind::kOperator, "-");
  if (minus || current().is(TokenKind::kOperator, "+")) {
    const Level level(*this);
    node = make(minus ? ExprKind::kNegative : ExprKind::kPositive, next().line);
    add(*node, unary(/*with_filters=*/false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  const auto& token = current();
  auto node = make(ExprKind::kConstant, token.line);
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (current().kind == TokenKind::kString) text += next().text;
    node->constant = Value(std::move(text));
    return node;
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return number();
  if (token.is(TokenKind::kOperator, "[")) return list();
  if (token.is(TokenKind::kOperator, "{")) return dict();
  if (skip_operator("(")) {
    if (skip_operator(")")) {
      node->kind = ExprKind::kTuple;
      return node;
    }
    node = tuple();
    expect_operator(")");
    return node;
  }
  const auto name = expect(TokenKind::kName, "an expression").text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->text = name;
    node->name = number_of(name);
  }
  return node;
}

ExprPtr ExpressionParser::number() {
  const auto token = next();
  auto node = make(ExprKind::kConstant, token.line);
  const auto* begin = token.text.data();
  const auto* end = begin + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) fail("a float out of range");
    node->constant = Value(value);
  } else {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) fail("an integer out of range");
    node->constant = Value(value);
  }
  return node;
}

ExprPtr ExpressionParser::list() {
  auto node = make(ExprKind::kList, next().line);
  while (!skip_operator("]")) {
    if (!node->parts.empty()) {
      expect_operator(",");
      if (skip_operator("]")) break;
    }
    add(*node, expression());
  }
  return node;
}

ExprPtr ExpressionParser::dict() {
  auto node = make(ExprKind::kDict, next().line);
  while (!skip_operator("}")) {
    if (!node->parts.empty()) {
      expect_operator(",");
      if (skip_operator("}")) break;
    }
    add(*node, expression());
    expect_operator(":");
    add(*node, expression());
  }
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr value) {
  for (;;) {
    if (current().is(TokenKind::kOperator, ".") || current().is(TokenKind::kOperator, "[")) {
      value = subscript(std::move(value));
    } else if (current().is(TokenKind::kOperator, "(")) {
      auto node = make(ExprKind::kCall, current().line);
      add(*node, std::move(value));
      arguments(*node);
      value = std::move(node);
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr value) {
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kInteger) {
      return pair(ExprKind::kItem, std::move(value), number());
    }
    const auto name = expect(TokenKind::kName, "a name");
    auto node = make(ExprKind::kAttribute, name.line);
    add(*node, std::move(value));
    node->text = name.text;
    return node;
  }
  expect_operator("[");
  ExprPtr begin;
  if (!current().is(TokenKind::kOperator, ":")) begin = expression();
  if (current().is(TokenKind::kOperator, ":")) return slice(std::move(value), std::move(begin));
  expect_operator("]");
  return pair(ExprKind::kItem, std::move(value), std::move(begin));
}

ExprPtr ExpressionParser::slice(ExprPtr value, ExprPtr begin) {
  auto node = make(ExprKind::kSlice, value->line);
  add(*node, std::move(value));
  add(*node, std::move(begin));
  for (int i = 0; i < 2; ++i) {
    const bool given = skip_operator(":") && !current().is(TokenKind::kOperator, ":") &&
                       !current().is(TokenKind::kOperator, "]");
    add(*node, given ? expression() : nullptr);
  }
  expect_operator("]");
  return node;
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr value) {
  for (;;) {
    if (current().is(TokenKind::kOperator, "|")) {
      value = filters(std::move(value));
    } else if (current().is(TokenKind::kName, "is")) {
      value = test(std::move(value));
    } else if (current().is(TokenKind::kOperator, "(")) {
      auto node = make(ExprKind::kCall, current().line);
      add(*node, std::move(value));
      arguments(*node);
      value = std::move(node);
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::filters(ExprPtr value, bool first_is_bare) {
  while (std::exchange(first_is_bare, false) || skip_operator("|")) {
    const auto name = expect(TokenKind::kName, "the name of a filter");
    auto node = make(ExprKind::kFilter, name.line);
    node->text = name.text;
    add(*node, std::move(value));
    if (current().is(TokenKind::kOperator, "(")) arguments(*node);
    value = std::move(node);
  }
  return value;
}

ExprPtr ExpressionParser::test(ExprPtr value) {
  const int line = next().line;
  const bool negated = skip_name("not");
  auto node = make(ExprKind::kTest, line);
  node->text = expect(TokenKind::kName, "the name of a test").text;
  add(*node, std::move(value));
  const auto& token = current();
  const bool begins_value =
      token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
      token.kind == TokenKind::kFloat || token.is(TokenKind::kOperator, "[") ||
      token.is(TokenKind::kOperator, "{") ||
      (token.kind == TokenKind::kName && token.text != "else" && token.text != "or" &&
       token.text != "and" && token.text != "is" && token.text != "if");
  if (token.is(TokenKind::kOperator, "(")) {
    arguments(*node);
  } else if (begins_value) {
    add(*node, postfix(primary()));
  }
  if (!negated) return node;
  auto negation = make(ExprKind::kNot, line);
  add(*negation, std::move(node));
  return negation;
}

void ExpressionParser::arguments(Expr& call) {
  expect_operator("(");
  for (bool first = true; !skip_operator(")"); first = false) {
    if (!first) {
      expect_operator(",");
      if (skip_operator(")")) return;
    }
    if (current().is(TokenKind::kOperator, "*") || current().is(TokenKind::kOperator, "**")) {
      fail("`*` and `**` before arguments are unknown");
    }
    if (current().kind == TokenKind::kName && tokens_[at_ + 1].is(TokenKind::kOperator, "=")) {
      call.keywords.push_back(next().text);
      next();
    } else if (!call.keywords.empty()) {
      fail("an argument without name behind one with");
    }
    add(call, expression());
  }
}

Target ExpressionParser::name_target() {
  const auto name = expect(TokenKind::kName, "a name").text;
  for (const std::string_view constant : {"true", "True", "false", "False", "none", "None"}) {
    if (name == constant) fail(fmt::format("'{}' cannot be assigned to", name));
  }
  return {.name = number_of(name), .text = name};
}

Target ExpressionParser::target(Namespaces namespaces) {
  const auto one = [&] {
    auto result = name_target();
    if (namespaces == Namespaces::kYes && skip_operator(".")) {
      result.attribute = expect(TokenKind::kName, "a name").text;
    }
    return result;
  };
  const bool brackets = skip_operator("(");
  auto first = one();
  if (!current().is(TokenKind::kOperator, ",")) {
    if (brackets) expect_operator(")");
    return first;
  }
  Target result;
  result.parts.push_back(std::move(first));
  while (skip_operator(",") && !ends_tuple() && !current().is(TokenKind::kOperator, "=")) {
    result.parts.push_back(one());
  }
  if (brackets) expect_operator(")");
  return result;
}

}  // namespace skein::text::jinja
