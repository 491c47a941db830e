// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/json.h"

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein {
namespace {

std::string why_refused(std::string_view text, const JsonLimits& limits = {}) {
  return refusal<IoError>([&] { parse_json<IoError>(text, "f.json", limits); });
}

TEST(Json, ATreeIsWhatTheLibraryReads) {
  const char* const texts[] = {
      "null",
      "-0",
      "[]",
      "{}",
      "[[], {}, [1, [2]]]",
      "1e300",
      "18446744073709551615",
      "-1.5",
      R"({"b": {"a": [true, null, "é\n"], "": 0}, "a": -7, "c": 99999999999999999999})"};
  for (const auto* text : texts) {
    EXPECT_EQ(parse_json(text), nlohmann::json::parse(text)) << text;
    EXPECT_EQ(parse_json(text).dump(), nlohmann::json::parse(text).dump()) << text;
    EXPECT_EQ(parse_ordered_json(text).dump(), nlohmann::ordered_json::parse(text).dump()) << text;
  }
}

TEST(Json, AnOrderedTreeHasTheSameLimits) {
  EXPECT_EQ(parse_ordered_json(R"({"b": {"z": 1, "a": 2}, "a": []})").dump(),
            R"({"b":{"z":1,"a":2},"a":[]})");
  EXPECT_THROW(parse_ordered_json(R"({"b": 1, "a": 2, "b": 1})"), JsonError);
  EXPECT_THROW(parse_ordered_json("[[1]]", {.depth = 1}), JsonError);
  EXPECT_THROW(parse_ordered_json("[1, 2]", {.bytes = 5}), JsonError);
  std::string many = "{";
  for (int i = 0; i <= 10'000; ++i) many += fmt::format("\"{}\": 0, ", i);
  const auto said = refusal<JsonError>([&] { parse_ordered_json(many + "\"\": 0}"); });
  EXPECT_EQ(said, "an object has more than 10000 keys");
}

TEST(Json, WhatIsPassedOverIsRefusedWithoutAThrow) {
  EXPECT_EQ(json_if_valid("[1]"), nlohmann::json({1}));
  EXPECT_EQ(ordered_json_if_valid("[1]"), nlohmann::ordered_json({1}));
  for (const auto* text : {"", "[1", "[1]]", R"({"a": 1, "a": 1})", "[\"\xff\"]"}) {
    EXPECT_FALSE(json_if_valid(text)) << text;
    EXPECT_FALSE(ordered_json_if_valid(text)) << text;
  }
  EXPECT_FALSE(json_if_valid("[[1]]", {.depth = 1}));
}

TEST(Json, AWholeNumberIsNotRounded) {
  const auto whole = [](const char* text) { return whole_number(parse_json(text)); };
  EXPECT_EQ(whole("7"), 7);
  EXPECT_EQ(whole("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(whole("9223372036854775807"), INT64_MAX);
  for (const auto* text : {"9223372036854775808", "1.0", "1e300", "\"7\"", "null", "[7]"}) {
    EXPECT_FALSE(whole(text)) << text;
  }
}

TEST(Json, ARefusalNamesFileAndPlace) {
  EXPECT_EQ(why_refused(""), "f.json:1:1: invalid JSON");
  EXPECT_EQ(why_refused("{\n  \"a\": 1,\n}"), "f.json:3:1: invalid JSON");
  EXPECT_EQ(why_refused("[1] x"), "f.json:1:5: invalid JSON");
  EXPECT_EQ(why_refused("\n[\"\xff\"]"), "f.json:2:3: invalid UTF-8");
  EXPECT_EQ(why_refused("[NaN]"), "f.json:1:2: invalid JSON");
  EXPECT_EQ(why_refused(std::string_view("[1]\0", 4)), "f.json:1:4: invalid JSON: a zero byte");
}

TEST(Json, AKeyOccursOnce) {
  EXPECT_EQ(why_refused(R"({"a": {"b": 1}, "b": 2})"), "");
  EXPECT_EQ(why_refused(R"({"a": {"b": 1, "c": 2, "b": 1}})"), "f.json: duplicate key 'b'");
  EXPECT_EQ(why_refused(R"({"a": 1, "\u0061": 1})"), "f.json: duplicate key 'a'");
  const auto name = std::string(1000, 'n');
  EXPECT_LT(why_refused("{\"" + name + "\": 1, \"" + name + "\": 2}").size(), 100u);
}

TEST(Json, SizeAndDepthAreLimited) {
  EXPECT_EQ(why_refused("[1, 2]", {.bytes = 6}), "");
  EXPECT_EQ(why_refused("[1, 2]", {.bytes = 5}), "f.json: 6 bytes, more than the 5 that are read");
  EXPECT_EQ(why_refused(R"([{"a": [1]}])", {.depth = 3}), "");
  EXPECT_EQ(why_refused(R"([{"a": [1]}])", {.depth = 2}), "f.json: nested deeper than 2 levels");
  EXPECT_EQ(why_refused("[[],[],[]]", {.depth = 2}), "");
  EXPECT_EQ(why_refused(std::string(1 << 20, '[')), "f.json: nested deeper than 64 levels");
}

TEST(Json, NumbersCanBeHeldToWholeOnes) {
  const JsonLimits limits{.whole_numbers = true};
  EXPECT_EQ(why_refused("[0, -1, 18446744073709551615]", limits), "");
  for (const auto* text : {"1.5", "1.0", "1e2", "18446744073709551616"}) {
    EXPECT_PRED2(contains, why_refused(text, limits), "not whole") << text;
  }
}

// Ends a walk at the first string, without a tree.
struct FirstString final : JsonEvents {
  std::string found;

  bool string(string_t& text) override {
    found = text;
    return false;
  }
};

TEST(Json, AWalkHasTheSameLimitsAndEndsWhenItIsTold) {
  FirstString events;
  EXPECT_FALSE(walk_json(R"([1, "a", broken)", {}, events));
  EXPECT_EQ(events.found, "a");
  EXPECT_TRUE(walk_json("[1, {\"a\": 2}]", {}, events));
  EXPECT_THROW(walk_json("[1, ", {}, events), JsonError);
  EXPECT_THROW(walk_json("[[1]]", {.depth = 1}, events), JsonError);
}

TEST(JsonObject, ReadsEveryTypeAndLeavesAbsentKeysAlone) {
  const auto object = JsonObject::parse(
      R"({"i": 7, "d": 1.5, "b": true, "t": "x", "n": null, "o": {"i": 8}})", "f.json");
  int64_t i = 1;
  double d = 1;
  bool b = false;
  std::string t;
  object.read("i", i);
  object.read("d", d);
  object.read("b", b);
  object.read("t", t);
  EXPECT_EQ(i, 7);
  EXPECT_EQ(d, 1.5);
  EXPECT_TRUE(b);
  EXPECT_EQ(t, "x");
  object.read("n", i);
  object.read("absent", i);
  EXPECT_EQ(i, 7);
  std::optional<int64_t> maybe;
  object.read("absent", maybe);
  EXPECT_FALSE(maybe);
  object.read("i", maybe);
  EXPECT_EQ(maybe, 7);
  object.object("o")->read("i", i);
  EXPECT_EQ(i, 8);
  EXPECT_FALSE(object.object("n"));
}

TEST(JsonObject, NamesFileKeyAndValue) {
  const auto object = JsonObject::parse(
      R"({"big": 18446744073709551615, "half": 0.5, "text": "x", "o": {"i": "y"}})", "f.json");
  const auto read = [&](const char* key) {
    return refusal<UserError>([&] {
      int64_t value = 0;
      object.read(key, value);
    });
  };
  EXPECT_EQ(read("big"), "f.json: big is 18446744073709551615, expected an integer");
  EXPECT_EQ(read("half"), "f.json: half is 0.5, expected an integer");
  EXPECT_EQ(read("text"), "f.json: text is \"x\", expected an integer");
  EXPECT_EQ(refusal<UserError>([&] {
              bool value = false;
              object.object("o")->read("i", value);
            }),
            "f.json: o: i is \"y\", expected true or false");
  EXPECT_EQ(refusal<UserError>([&] { object.object("half"); }), "f.json: half is not an object");
  EXPECT_EQ(refusal<UserError>([] { JsonObject::parse("[]", "f.json"); }),
            "f.json: not a JSON object");
}

}  // namespace
}  // namespace skein
