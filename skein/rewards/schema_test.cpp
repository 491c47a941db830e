// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/schema.h"

#include <gtest/gtest.h>

#include <vector>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/core/testing.h"

namespace skein::rewards {
namespace {

struct Case {
  const char* schema;
  std::vector<const char*> good, bad;
};

// Every word of the subset decides something.
const std::vector<Case> kCases = {
    {"true", {"1", "{}"}, {}},
    {"false", {}, {"1", "{}"}},
    {R"({"type": "object"})", {"{}"}, {"[]", "1"}},
    {R"({"type": ["string", "null"]})", {R"("a")", "null"}, {"1"}},
    {R"({"type": "integer"})", {"1", "-1", "1.0"}, {"1.5", "\"1\""}},
    {R"({"type": "number"})", {"1", "1.5"}, {"true"}},
    {R"({"type": "boolean"})", {"true"}, {"1"}},
    {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
     {"[1]", "[1, 2]"},
     {"[]", "[1, 2, 3]", R"(["a"])"}},
    {R"({"enum": [1, "a", null]})", {"1", R"("a")", "null"}, {"2", "{}"}},
    {R"({"const": {"a": [1]}})", {R"({"a": [1]})"}, {R"({"a": [2]})"}},
    {R"({"properties": {"a": {"type": "integer"}}, "required": ["a"]})",
     {R"({"a": 1})", R"({"a": 1, "b": 2})", "[]"},
     {"{}", R"({"a": "x"})"}},
    {R"({"properties": {"a": {}}, "additionalProperties": false})",
     {R"({"a": 1})", "{}"},
     {R"({"b": 1})"}},
    {R"({"additionalProperties": {"type": "string"}})", {R"({"b": "x"})"}, {R"({"b": 1})"}},
    {R"({"minLength": 2, "maxLength": 3})", {R"("ää")", R"("abc")", "1"}, {R"("ä")", R"("abcd")"}},
    {R"({"pattern": "^[a-z]+$"})", {R"("abc")", "1"}, {R"("aBc")"}},
    {R"({"minimum": 1, "maximum": 2})", {"1", "2", "\"x\""}, {"0.9", "3"}},
    {R"({"exclusiveMinimum": 1, "exclusiveMaximum": 2})", {"1.5"}, {"1", "2"}},
    {R"({"anyOf": [{"type": "string"}, {"minimum": 5}]})", {R"("a")", "6"}, {"4"}},
    {R"({"oneOf": [{"minimum": 1}, {"maximum": 3}]})", {"0", "4"}, {"2"}},
    {R"({"allOf": [{"minimum": 1}, {"maximum": 3}]})", {"2"}, {"0", "4"}},
    {R"({"not": {"type": "null"}})", {"1"}, {"null"}},
    {R"({"title": "t", "description": "d", "format": "date", "default": 1})", {"1"}, {}},
};

TEST(Schema, EveryWordOfTheSubset) {
  for (const auto& [text, good, bad] : kCases) {
    const Schema schema(parse_json(text), "test");
    for (const auto* value : good) EXPECT_TRUE(schema.accepts(parse_json(value))) << text << value;
    for (const auto* value : bad) EXPECT_FALSE(schema.accepts(parse_json(value))) << text << value;
  }
}

TEST(Schema, OtherWordsAndWrongValuesAreRefused) {
  for (const auto* text :
       {"1", "[]", R"({"$ref": "#"})", R"({"uniqueItems": true})", R"({"type": "integr"})",
        R"({"type": 1})", R"({"enum": 1})", R"({"required": "a"})", R"({"required": [1]})",
        R"({"minItems": -1})", R"({"minItems": 1.5})", R"({"minimum": "1"})", R"({"anyOf": []})",
        R"({"anyOf": {}})", R"({"pattern": "("})", R"({"properties": [1]})", R"({"not": 1})",
        R"({"properties": {"a": {"b": 1}}})"}) {
    EXPECT_NE(refusal<UserError>([&] { Schema(parse_json(text), "test"); }), "") << text;
  }
  const auto message =
      refusal<UserError>([] { Schema(parse_json(R"({"items": {"type": "strng"}})"), "s.json"); });
  EXPECT_EQ(message, "s.json: items: type: unknown type 'strng'; did you mean 'string'?");
}

TEST(Schema, APatternThatGivesUpIsNotFound) {
  const Schema schema(parse_json(R"({"pattern": "^(a+)+$"})"), "test");
  EXPECT_TRUE(schema.accepts("aaa"));
  EXPECT_FALSE(schema.accepts(std::string(5000, 'a') + "b"));
}

}  // namespace
}  // namespace skein::rewards
