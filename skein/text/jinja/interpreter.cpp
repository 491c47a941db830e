// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "skein/text/jinja/filters.h"
#include "skein/text/jinja/methods.h"
#include "skein/text/jinja/operations.h"

namespace skein::text::jinja {
namespace {

constexpr int kLoopName = 0;

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"range", Function::kRange},
    {"namespace", Function::kNamespace},
    {"raise_exception", Function::kRaiseException},
    {"strftime_now", Function::kStrftimeNow},
    {"dict", Function::kDict},
};

}  // namespace

// One level of expressions and blocks while it lives.
class Interpreter::Nested {
 public:
  Nested(Interpreter& interpreter, int line) : interpreter_(interpreter) {
    interpreter.line_ = line;
    interpreter.meter_.step();
    if (++interpreter.nesting_ > interpreter.options_.limits.nesting) {
      --interpreter.nesting_;
      throw Failure(fmt::format("expressions and blocks inside each other, deeper than {} levels",
                                interpreter.options_.limits.nesting));
    }
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { --interpreter_.nesting_; }

 private:
  Interpreter& interpreter_;
};

const Value* Interpreter::Scope::find(int name) const {
  for (const auto* scope = this; scope; scope = scope->outer) {
    for (const auto& [number, value] : scope->variables) {
      if (number == name) return &value;
    }
  }
  return nullptr;
}

void Interpreter::Scope::set(int name, Value value) {
  for (auto& [number, old] : variables) {
    if (number != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const TemplateSyntax& syntax, const RenderOptions& options)
    : syntax_(syntax), options_(options), meter_(options.limits) {}

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->entries.clear();
}

Rendered Interpreter::run(const Dict& variables) {
  for (const auto& [name, value] : variables.entries()) {
    // A variable that the template does not name cannot be asked for.
    if (const auto found = syntax_.names.find(name); found != syntax_.names.end()) {
      root_.set(found->second, value);
    }
  }
  run_block(syntax_.body);
  return {.text = std::move(output_), .generated = std::move(generated_), .steps = meter_.steps()};
}

void Interpreter::print(std::string_view text) {
  if (output_.size() + text.size() > options_.limits.output_bytes) {
    throw Failure(fmt::format("more than {} bytes of text", options_.limits.output_bytes));
  }
  output_ += text;
}

Interpreter::Flow Interpreter::run_block(const Block& block) {
  for (const auto& statement : block) {
    if (const auto flow = run_statement(statement); flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement) {
  const Nested nested(*this, statement.line);
  switch (statement.kind) {
    case StatementKind::kText:
      print(statement.text);
      break;
    case StatementKind::kPrint: {
      const auto value = evaluate(*statement.exprs[0]);
      if (value.string())
        print(*value.string());
      else
        print(text_of(value, meter_));
      break;
    }
    case StatementKind::kIf:
      return run_if(statement);
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kSet:
      assign(statement.target, evaluate(*statement.exprs[0]));
      break;
    case StatementKind::kSetBlock:
      run_set_block(statement);
      break;
    case StatementKind::kFilterBlock:
      print(captured(statement));
      break;
    case StatementKind::kMacro:
      scope_->set(statement.macro->name_number,
                  Value(static_cast<const MacroSyntax*>(statement.macro.get())));
      break;
    case StatementKind::kGeneration:
      run_generation(statement);
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement) {
  for (size_t i = 0; i < statement.exprs.size(); ++i) {
    if (evaluate(*statement.exprs[i]).truth()) return run_block(statement.blocks[i]);
  }
  const bool has_else = statement.blocks.size() > statement.exprs.size();
  return has_else ? run_block(statement.blocks.back()) : Flow::kOn;
}

std::vector<Value> Interpreter::loop_items(const Statement& statement) {
  auto items = items_of(evaluate(*statement.exprs[0]), meter_);
  if (!statement.exprs[1]) return items;
  Inner inner(*this, *scope_);
  std::erase_if(items, [&](const Value& item) {
    assign(statement.target, item);
    return !evaluate(*statement.exprs[1]).truth();
  });
  return items;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement) {
  const auto loop = std::make_shared<Loop>(Loop{.items = loop_items(statement)});
  if (loop->items.empty()) {
    return statement.blocks.size() > 1 ? run_block(statement.blocks[1]) : Flow::kOn;
  }
  Inner inner(*this, *scope_);
  for (; loop->index < loop->items.size(); ++loop->index) {
    inner.clear();
    meter_.step();
    scope_->set(kLoopName, Value(loop));
    assign(statement.target, loop->items[loop->index]);
    if (run_block(statement.blocks[0]) == Flow::kBreak) break;
  }
  return Flow::kOn;
}

std::string Interpreter::captured(const Statement& statement) {
  std::string text;
  {
    Inner inner(*this, *scope_);
    ++captures_;
    auto before = std::exchange(output_, {});
    run_block(statement.blocks[0]);
    text = std::exchange(output_, std::move(before));
    --captures_;
  }
  meter_.text(text.size());
  if (statement.exprs.empty()) return text;
  Inner inner(*this, *scope_);
  scope_->set(syntax_.names.at(kCaptured), Value(std::move(text)));
  return text_of(evaluate(*statement.exprs[0]), meter_);
}

void Interpreter::run_set_block(const Statement& statement) {
  assign(statement.target, Value(captured(statement)));
}

void Interpreter::run_generation(const Statement& statement) {
  if (captures_ > 0) {
    throw Failure(
        "{% generation %} inside a macro, {% set %} or {% filter %} block: where its text goes is "
        "unknown");
  }
  Inner inner(*this, *scope_);
  const size_t begin = output_.size();
  run_block(statement.blocks[0]);
  generated_.push_back({.begin = begin, .end = output_.size()});
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.parts.empty()) {
    auto items = items_of(value, meter_);
    if (items.size() != target.parts.size()) {
      throw Failure(fmt::format("{} values for {} names", items.size(), target.parts.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], std::move(items[i]));
    return;
  }
  if (target.attribute.empty()) return scope_->set(target.name, std::move(value));
  const auto* holder = scope_->find(target.name);
  const auto* space = holder ? holder->get<std::shared_ptr<Namespace>>() : nullptr;
  if (!space) {
    throw Failure(
        fmt::format("'{}' is not a namespace(): its attributes cannot be set", target.text));
  }
  if (target.attribute.starts_with('_')) {
    throw Failure(
        fmt::format("'{}': a namespace has no names that begin with _", target.attribute));
  }
  for (auto& [name, old] : (*space)->entries) {
    if (name != target.attribute) continue;
    old = std::move(value);
    return;
  }
  (*space)->entries.emplace_back(target.attribute, std::move(value));
}

Value Interpreter::evaluate_name(const Expr& expr) const {
  if (const auto* value = scope_->find(expr.name)) return *value;
  for (const auto& [name, function] : kFunctions) {
    if (name == expr.text) return Value(function);
  }
  return Value(Undefined{&expr.text});
}

Value Interpreter::evaluate(const Expr& expr) {
  const Nested nested(*this, expr.line);
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return evaluate_name(expr);
    case ExprKind::kAttribute:
      return attribute_of(evaluate(*expr.parts[0]), expr.text);
    case ExprKind::kItem:
      return evaluate_item(expr);
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return evaluate_filter_or_test(expr);
    case ExprKind::kNot:
      return Value(!evaluate(*expr.parts[0]).truth());
    case ExprKind::kNegative:
      return negative(evaluate(*expr.parts[0]));
    case ExprKind::kPositive:
      return negative(negative(evaluate(*expr.parts[0])));
    case ExprKind::kBinary: {
      const auto left = evaluate(*expr.parts[0]);
      return binary(expr.operators[0], left, evaluate(*expr.parts[1]), meter_);
    }
    case ExprKind::kConcat:
      return evaluate_concat(expr);
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      auto left = evaluate(*expr.parts[0]);
      return left.truth() == (expr.kind == ExprKind::kOr) ? left : evaluate(*expr.parts[1]);
    }
    case ExprKind::kCondition:
      if (evaluate(*expr.parts[1]).truth()) return evaluate(*expr.parts[0]);
      return expr.parts[2] ? evaluate(*expr.parts[2]) : Value(Undefined{});
    case ExprKind::kList:
      return Value::list(evaluate_parts(expr));
    case ExprKind::kTuple:
      return Value::tuple(evaluate_parts(expr));
    case ExprKind::kDict:
      return evaluate_dict(expr);
  }
  return {};
}

Value Interpreter::evaluate_item(const Expr& expr) {
  const auto value = evaluate(*expr.parts[0]);
  auto item = item_of(value, evaluate(*expr.parts[1]), meter_);
  // A constant lives as long as the template, so a message may name it.
  const auto* key = expr.parts[1]->constant.string();
  return item.is_undefined() && key ? Value(Undefined{key}) : item;
}

Value Interpreter::evaluate_filter_or_test(const Expr& expr) {
  const auto value = evaluate(*expr.parts[0]);
  auto arguments = arguments_of(expr, expr.text);
  line_ = expr.line;
  if (expr.kind == ExprKind::kTest) return Value(apply_test(expr.text, value, arguments, meter_));
  return apply_filter(expr.text, value, arguments, meter_);
}

std::vector<Value> Interpreter::evaluate_parts(const Expr& expr, size_t from) {
  std::vector<Value> values;
  values.reserve(expr.parts.size() - from);
  for (size_t i = from; i < expr.parts.size(); ++i) values.push_back(evaluate(*expr.parts[i]));
  return values;
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  auto left = evaluate(*expr.parts[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    auto right = evaluate(*expr.parts[i + 1]);
    if (!compare(expr.operators[i], left, right, meter_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate_slice(const Expr& expr) {
  const auto value = evaluate(*expr.parts[0]);
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.parts[i + 1]) continue;
    const auto bound = evaluate(*expr.parts[i + 1]);
    if (bound.is_none()) continue;
    bounds[i] = bound.integer();
    if (!bounds[i]) throw Failure(fmt::format("a slice by {}, expected integers", bound.type()));
  }
  return slice_of(value, {.begin = bounds[0], .end = bounds[1], .step = bounds[2]}, meter_);
}

Value Interpreter::evaluate_concat(const Expr& expr) {
  std::string text;
  for (const auto& part : expr.parts) text += text_of(evaluate(*part), meter_);
  return Value(std::move(text));
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    const auto key = evaluate(*expr.parts[i]);
    if (!key.string()) {
      throw Failure(fmt::format("{} as the key of a dictionary, expected a string", key.type()));
    }
    dict.set(*key.string(), evaluate(*expr.parts[i + 1]));
  }
  return Value(std::move(dict));
}

Arguments Interpreter::arguments_of(const Expr& expr, std::string_view what) {
  auto values = evaluate_parts(expr, 1);
  std::vector<std::pair<std::string, Value>> named;
  const size_t by_place = values.size() - expr.keywords.size();
  for (size_t i = 0; i < expr.keywords.size(); ++i) {
    named.emplace_back(expr.keywords[i], std::move(values[by_place + i]));
  }
  values.resize(by_place);
  return {what, std::move(values), std::move(named)};
}

Value Interpreter::evaluate_call(const Expr& expr) {
  const auto& callee = *expr.parts[0];
  if (callee.kind != ExprKind::kAttribute) {
    const auto function = evaluate(callee);
    auto arguments = arguments_of(expr, callee.text);
    line_ = expr.line;
    return call(function, arguments);
  }
  const auto receiver = evaluate(*callee.parts[0]);
  if (receiver.string() || receiver.dict() || receiver.sequence()) {
    // Without making a method first, which most calls would.
    auto arguments = arguments_of(expr, callee.text);
    line_ = expr.line;
    return call_method(receiver, callee.text, arguments, meter_);
  }
  const auto function = attribute_of(receiver, callee.text);
  auto arguments = arguments_of(expr, callee.text);
  return call(function, arguments);
}

}  // namespace skein::text::jinja
