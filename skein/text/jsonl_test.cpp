// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jsonl.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::text {
namespace {

std::string why_refused(std::string_view line) {
  return refusal<IoError>([&] { text_of_line(line); });
}

TEST(Jsonl, FindsTheTextAmongOtherKeys) {
  EXPECT_EQ(text_of_line(R"({"text": "a\nb\u00e9"})"), "a\nb\xc3\xa9");
  EXPECT_EQ(text_of_line(R"( {"id": 1, "meta": {"text": 5, "l": [{"text": "x"}]}, "text": ""} )"),
            "");
  EXPECT_EQ(text_of_line("{\"text\": \"x\", \"after\": [null, true, 1.5]}\r"), "x");
}

TEST(Jsonl, SaysWhatIsWrong) {
  EXPECT_EQ(why_refused("[1]"), "expected an object with a \"text\", found an array");
  EXPECT_EQ(why_refused("\"text\""), "expected an object with a \"text\", found a string");
  EXPECT_EQ(why_refused("{}"), "the object has no key \"text\"");
  EXPECT_EQ(why_refused(R"({"id": 1, "messages": []})"),
            "the object has \"messages\" and no \"text\": stage=sft trains on such rows; on those "
            "with \"chosen\" and \"rejected\" dpo and rm, with a \"label\" kto");
  EXPECT_EQ(why_refused(R"({"meta": {"text": "x"}})"), "the object has no key \"text\"");
  EXPECT_EQ(why_refused(R"({"text": 5})"), "\"text\" must be a string, found a number");
  EXPECT_EQ(why_refused(R"({"text": null})"), "\"text\" must be a string, found null");
  EXPECT_EQ(why_refused(R"({"text": {"a": 1}})"), "\"text\" must be a string, found an object");
  EXPECT_EQ(why_refused(R"({"text": "a", "text": "b"})"), "the key \"text\" occurs twice");
}

TEST(Jsonl, BrokenBytesAreRefusedWithTheirPlace) {
  EXPECT_EQ(why_refused(R"({"text": "a")"), "invalid JSON at byte 13 of the line");
  EXPECT_EQ(why_refused(R"({"text": "a"} x)"), "invalid JSON at byte 15 of the line");
  EXPECT_EQ(why_refused("{\"text\": \"a\xff\"}"), "invalid UTF-8 at byte 12 of the line");
  EXPECT_EQ(why_refused("{\"text\": \"\xed\xa0\x80\"}").substr(0, 13),
            "invalid UTF-8");  // surrogate
  EXPECT_EQ(why_refused(R"({"text": "\ud800"})").substr(0, 12), "invalid JSON");
  EXPECT_EQ(why_refused(std::string_view("{\"text\": \"a\"}\0{", 15)),
            "invalid JSON: a zero byte at byte 14 of the line");
}

TEST(Jsonl, DeepNestingIsRefusedWithoutRecursion) {
  const std::string open = R"({"text": "x", "deep": )";
  EXPECT_EQ(text_of_line(open + std::string(63, '[') + std::string(63, ']') + "}"), "x");
  EXPECT_EQ(why_refused(open + std::string(1 << 20, '[')), "nested deeper than 64 levels");
}

}  // namespace
}  // namespace skein::text
