// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a template, once it has been read?

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

enum class ExprKind : uint8_t {
  kConstant,   // constant
  kName,       // text, name
  kAttribute,  // parts[0].text
  kItem,       // parts[0][parts[1]]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], each of the last three may be null
  kCall,       // parts[0](the other parts)
  kFilter,     // parts[0] | text(the other parts)
  kTest,       // parts[0] is text(the other parts)
  kNot,
  kNegative,
  kPositive,
  kBinary,     // parts[0] op parts[1]
  kConcat,     // parts[0] ~ parts[1] ~ …
  kCompare,    // parts[0] op parts[1] op parts[2] …
  kAnd,        // parts[0] and parts[1]
  kOr,         // parts[0] or parts[1]
  kCondition,  // parts[0] if parts[1] else parts[2], which may be null
  kList,
  kTuple,
  kDict,  // keys and values by turns
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

struct Expr {
  ExprKind kind;
  int line = 1;
  int height = 1;  // of the tree
  int name = 0;    // the number of a variable's name
  Value constant;
  std::string text;
  std::vector<std::unique_ptr<Expr>> parts;
  std::vector<Operator> operators;
  std::vector<std::string> keywords;  // the names of the last parts, in a call, filter or test
};
using ExprPtr = std::unique_ptr<Expr>;

// What an assignment or a loop fills.
struct Target {
  int name = 0;
  std::string attribute;      // of the namespace `name`; empty: the variable itself
  std::vector<Target> parts;  // of a tuple, which has no name
  std::string text;           // of the name
};

enum class StatementKind : uint8_t {
  kText,         // text
  kPrint,        // {{ exprs[0] }}
  kIf,           // exprs[i]: blocks[i]; one more block: else
  kFor,          // target in exprs[0] if exprs[1] (may be null): blocks[0], else blocks[1]
  kSet,          // target = exprs[0]
  kSetBlock,     // target = blocks[0], through the filter exprs[0] if there is one
  kFilterBlock,  // blocks[0] through the filter exprs[0]
  kMacro,        // macro
  kGeneration,   // blocks[0]
  kBreak,
  kContinue,
};

struct Statement;
using Block = std::vector<Statement>;

struct MacroSyntax {
  std::string name;
  int name_number = 0;
  int line = 1;
  std::vector<Target> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block body;
};

struct Statement {
  StatementKind kind;
  int line = 1;
  std::string text;
  Target target;
  std::vector<ExprPtr> exprs;
  std::vector<Block> blocks;
  std::unique_ptr<MacroSyntax> macro;
};

struct TemplateSyntax {
  Block body;
  std::unordered_map<std::string, int> names;  // of variables; `loop` is 0
  bool has_generation = false;
};

// In the tree, the value that a filter block's filters begin with.
inline constexpr const char* kCaptured = "(block)";

}  // namespace skein::text::jinja
