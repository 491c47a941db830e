// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is a template carried out?

#include <string>
#include <utility>
#include <vector>

#include "skein/text/jinja/arguments.h"
#include "skein/text/jinja/meter.h"
#include "skein/text/jinja/syntax.h"
#include "skein/text/jinja/template.h"
#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

// For one rendering.
class Interpreter {
 public:
  // Both must outlive this.
  Interpreter(const TemplateSyntax& syntax, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws Failure.
  Rendered run(const Dict& variables);
  // That was being carried out last.
  int line() const { return line_; }

 private:
  // Variables by the numbers of their names. What an inner scope sets ends with it.
  struct Scope {
    const Scope* outer = nullptr;
    std::vector<std::pair<int, Value>> variables;

    const Value* find(int name) const;
    void set(int name, Value value);
  };
  enum class Flow : uint8_t { kOn, kBreak, kContinue };
  class Nested;
  // A scope inside `outer` while it lives.
  class Inner {
   public:
    Inner(Interpreter& interpreter, const Scope& outer)
        : interpreter_(interpreter),
          scope_{.outer = &outer, .variables = {}},
          before_(std::exchange(interpreter.scope_, &scope_)) {}
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;
    ~Inner() { interpreter_.scope_ = before_; }

    void clear() { scope_.variables.clear(); }

   private:
    Interpreter& interpreter_;
    Scope scope_;
    Scope* before_;
  };

  Flow run_block(const Block& block);
  Flow run_statement(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  std::vector<Value> loop_items(const Statement& statement);
  void run_set_block(const Statement& statement);
  void run_generation(const Statement& statement);
  std::string captured(const Statement& statement);
  void assign(const Target& target, Value value);
  void print(std::string_view text);

  Value evaluate(const Expr& expr);
  Value evaluate_name(const Expr& expr) const;
  Value evaluate_item(const Expr& expr);
  Value evaluate_filter_or_test(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  std::vector<Value> evaluate_parts(const Expr& expr, size_t from = 0);
  // The parts behind the first.
  Arguments arguments_of(const Expr& expr, std::string_view what);

  Value call(const Value& callee, Arguments& arguments);
  Value call_function(Function function, Arguments& arguments);
  Value call_macro(const MacroSyntax& macro, Arguments& arguments);
  Value range(Arguments& arguments) const;
  Value make_namespace(Arguments& arguments);
  Value time_text(const std::string& format) const;

  const TemplateSyntax& syntax_;
  const RenderOptions& options_;
  Meter meter_;
  int line_ = 1;
  int nesting_ = 0;
  int macros_ = 0;    // that are being called
  int captures_ = 0;  // blocks whose text is kept instead of printed
  Scope root_;
  Scope* scope_ = &root_;
  std::string output_;
  std::vector<Span> generated_;
  // They may hold each other, and are emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace skein::text::jinja
