// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jsonl.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"

namespace skein::text {
namespace {

std::string refusal(std::string_view line) {
  try {
    return "accepted: " + text_of_line(line);
  } catch (const IoError& error) {
    return error.what();
  }
}

TEST(Jsonl, FindsTheTextAmongOtherKeys) {
  EXPECT_EQ(text_of_line(R"({"text": "a\nb\u00e9"})"), "a\nb\xc3\xa9");
  EXPECT_EQ(text_of_line(R"( {"id": 1, "meta": {"text": 5, "l": [{"text": "x"}]}, "text": ""} )"),
            "");
  EXPECT_EQ(text_of_line("{\"text\": \"x\", \"after\": [null, true, 1.5]}\r"), "x");
}

TEST(Jsonl, SaysWhatIsWrong) {
  EXPECT_EQ(refusal("[1]"), "expected an object with a \"text\", found an array");
  EXPECT_EQ(refusal("\"text\""), "expected an object with a \"text\", found a string");
  EXPECT_EQ(refusal("{}"), "the object has no key \"text\"");
  EXPECT_EQ(refusal(R"({"meta": {"text": "x"}})"), "the object has no key \"text\"");
  EXPECT_EQ(refusal(R"({"text": 5})"), "\"text\" must be a string, found a number");
  EXPECT_EQ(refusal(R"({"text": null})"), "\"text\" must be a string, found null");
  EXPECT_EQ(refusal(R"({"text": {"a": 1}})"), "\"text\" must be a string, found an object");
  EXPECT_EQ(refusal(R"({"text": "a", "text": "b"})"), "the key \"text\" occurs twice");
}

TEST(Jsonl, BrokenBytesAreRefusedWithTheirPlace) {
  EXPECT_EQ(refusal(R"({"text": "a")"), "invalid JSON at byte 13 of the line");
  EXPECT_EQ(refusal(R"({"text": "a"} x)"), "invalid JSON at byte 15 of the line");
  EXPECT_EQ(refusal("{\"text\": \"a\xff\"}"), "invalid UTF-8 at byte 12 of the line");
  EXPECT_EQ(refusal("{\"text\": \"\xed\xa0\x80\"}").substr(0, 13), "invalid UTF-8");  // surrogate
  EXPECT_EQ(refusal(R"({"text": "\ud800"})").substr(0, 12), "invalid JSON");
  EXPECT_EQ(refusal(std::string_view("{\"text\": \"a\"}\0{", 15)),
            "invalid JSON at byte 14 of the line: a zero byte");
}

TEST(Jsonl, DeepNestingIsRefusedWithoutRecursion) {
  const std::string open = R"({"text": "x", "deep": )";
  EXPECT_EQ(text_of_line(open + std::string(63, '[') + std::string(63, ']') + "}"), "x");
  EXPECT_EQ(refusal(open + std::string(1 << 20, '[')), "nested deeper than 64 levels");
}

}  // namespace
}  // namespace skein::text
