// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The interpreter's calls: of functions that every template has, of methods and macros.
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "skein/text/jinja/interpreter.h"
#include "skein/text/jinja/methods.h"
#include "skein/text/jinja/operations.h"

namespace skein::text::jinja {

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (const auto* function = callee.get<Function>()) return call_function(*function, arguments);
  if (const auto* macro = callee.get<const MacroSyntax*>()) return call_macro(**macro, arguments);
  if (const auto* method = callee.get<std::shared_ptr<const Method>>()) {
    const auto& receiver = (*method)->receiver;
    if (const auto* loop = receiver.get<std::shared_ptr<Loop>>()) {
      const auto values = arguments.rest();
      if (values.empty()) throw Failure("loop.cycle() without values");
      return values[(*loop)->index % values.size()];
    }
    return call_method(receiver, (*method)->name, arguments, meter_);
  }
  if (callee.is_undefined()) {
    throw Failure(fmt::format("'{}' is undefined: there is no such function", arguments.what()));
  }
  throw Failure(fmt::format("{} is called, which is no function", callee.type()));
}

Value Interpreter::call_function(Function function, Arguments& arguments) {
  switch (function) {
    case Function::kRange:
      return range(arguments);
    case Function::kNamespace:
      return make_namespace(arguments);
    case Function::kRaiseException:
      throw Failure(fmt::format("the template refuses this conversation: {}",
                                text_of(arguments.take("message"), meter_)));
    case Function::kStrftimeNow:
      return time_text(arguments.string("format"));
    case Function::kDict:
      break;
  }
  Dict dict;
  if (const auto first = arguments.take("mapping"); first.dict()) dict = *first.dict();
  for (auto& [name, value] : arguments.named()) dict.set(name, std::move(value));
  arguments.finish();
  meter_.step(dict.size());
  return Value(std::move(dict));
}

Value Interpreter::range(Arguments& arguments) const {
  int64_t begin = 0, end = arguments.integer("start", 0), step = 1;
  if (!arguments.empty()) begin = std::exchange(end, arguments.integer("stop", 0));
  if (!arguments.empty()) step = arguments.integer("step", 1);
  arguments.finish();
  if (step == 0) throw Failure("range() with step 0");
  std::vector<Value> values;
  for (int64_t at = begin; step < 0 ? at > end : at < end;) {
    if (static_cast<int64_t>(values.size()) == options_.limits.range) {
      throw Failure(fmt::format("range() of more than {} items", options_.limits.range));
    }
    values.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::list(std::move(values));
}

Value Interpreter::make_namespace(Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  Dict entries;
  if (const auto first = arguments.take("mapping"); first.dict()) entries = *first.dict();
  for (auto& [name, value] : arguments.named()) entries.set(name, std::move(value));
  arguments.finish();
  for (const auto& [name, value] : entries.entries()) {
    if (name.starts_with('_')) {
      throw Failure(fmt::format("'{}': a namespace has no names that begin with _", name));
    }
    space->entries.emplace_back(name, value);
  }
  namespaces_.push_back(space);
  return Value(std::move(space));
}

Value Interpreter::time_text(const std::string& format) const {
  const std::time_t now = options_.now.value_or(std::time(nullptr));
  std::tm local{};
  localtime_r(&now, &local);
  char text[4096];
  if (format.empty() || format.size() > 256) return Value("");
  return Value(std::string(text, std::strftime(text, sizeof(text), format.c_str(), &local)));
}

Value Interpreter::call_macro(const MacroSyntax& macro, Arguments& arguments) {
  if (macros_ == options_.limits.depth) {
    throw Failure(
        fmt::format("macros that call each other, deeper than {} levels", options_.limits.depth));
  }
  ++macros_;
  ++captures_;
  auto before = std::exchange(output_, {});
  {
    // A macro sees the template's variables, not those of its caller.
    const Inner inner(*this, root_);
    const size_t required = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& parameter = macro.parameters[i];
      auto value = arguments.find(parameter.text);
      if (!value && i >= required) value = evaluate(*macro.defaults[i - required]);
      scope_->set(parameter.name, value ? std::move(*value) : Value(Undefined{&parameter.text}));
    }
    arguments.finish();
    run_block(macro.body);
  }
  auto text = std::exchange(output_, std::move(before));
  --captures_;
  --macros_;
  meter_.text(text.size());
  return Value(std::move(text));
}

}  // namespace skein::text::jinja
