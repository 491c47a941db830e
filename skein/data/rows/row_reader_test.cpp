// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_reader.h"

#include <gtest/gtest.h>

#include <vector>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/rows/row_columns.h"

namespace skein::data {
namespace {

class RowReaderTest : public TemporaryFolder {
 protected:
  // "NUMBER JSON" of every row.
  std::vector<std::string> rows(const std::string& name, std::string_view content) const {
    RowReader reader(write(name, content));
    std::vector<std::string> found;
    for (RawRow row; reader.next(row);) {
      found.push_back(std::to_string(row.number) + " " + (row.is_too_long ? "…" : row.json));
    }
    RawRow after;
    EXPECT_FALSE(reader.next(after)) << "the end stays";
    return found;
  }
  std::string refusal_of(const std::string& name, std::string_view content) const {
    return refusal<IoError>([&] { rows(name, content); });
  }
};

using Rows = std::vector<std::string>;

TEST_F(RowReaderTest, LinesOfJsonl) {
  EXPECT_EQ(rows("a.jsonl", "{1}\n\n  \r\n{4}\r\n{5}"), (Rows{"1 {1}", "4 {4}\r", "5 {5}"}));
  EXPECT_EQ(rows("a.jsonl", ""), Rows{});
  EXPECT_EQ(rows("a.jsonl", "\xEF\xBB\xBF{1}\n"), Rows{"1 {1}"});
  EXPECT_EQ(rows("a.jsonl", "1\n[2]\n"), (Rows{"1 1", "2 [2]"}))
      << "a line is a row, whatever it says";
}

TEST_F(RowReaderTest, ListsAndLinesOfJson) {
  EXPECT_EQ(rows("a.json", " [ {\"a\": [1, 2]} ,\n{\"b\": \"]},\\\"\\\\\"}\n]\n"),
            (Rows{"1 {\"a\": [1, 2]} ", "2 {\"b\": \"]},\\\"\\\\\"}\n"}));
  EXPECT_EQ(rows("a.json", "[]"), Rows{});
  EXPECT_EQ(rows("a.json", ""), Rows{});
  EXPECT_EQ(rows("a.json", "[1,\"x\"]"), (Rows{"1 1", "2 \"x\""}));
  EXPECT_EQ(rows("a.json", "{1}\n{2}\n"), (Rows{"1 {1}", "2 {2}"}));
  EXPECT_EQ(rows("a.jsonl", "[\n  {\n    1\n  }, {2}]\n"), (Rows{"1 {\n    1\n  }", "2 {2}"}))
      << "a list by another name";
}

TEST_F(RowReaderTest, RowsAcrossWindows) {
  const std::string inside(700'000, 'x');
  Rows expected;
  std::string list = "[", lines;
  for (int i = 1; i <= 5; ++i) {
    const auto row = "{\"" + inside + "\\\"]\"}";
    list += (i > 1 ? "," : "") + row;
    lines += row + "\n";
    expected.push_back(std::to_string(i) + " " + row);
  }
  EXPECT_EQ(rows("a.json", list + "]" + std::string(2'000'000, '\n')), expected);
  EXPECT_EQ(rows("a.jsonl", lines), expected);
}

TEST_F(RowReaderTest, BrokenListsAreRefusedByRow) {
  EXPECT_PRED2(contains, refusal_of("a.json", "[{},{}"), "a.json:2: the file ends inside of this");
  EXPECT_PRED2(contains, refusal_of("a.json", "[{},{\"a"),
               "a.json:2: the file ends inside of this");
  EXPECT_PRED2(contains, refusal_of("a.json", "[{},"), "a.json:2: the file ends");
  EXPECT_PRED2(contains, refusal_of("a.json", "["), "a.json:1: the file ends inside of its list");
  EXPECT_PRED2(contains, refusal_of("a.json", "[{},]"), "a.json:2: a place of the list is empty");
  EXPECT_PRED2(contains, refusal_of("a.json", "[,{}]"), "a.json:1: a place of the list is empty");
  EXPECT_PRED2(contains, refusal_of("a.json", "[{}}]"), "a.json:1: expected a comma");
  EXPECT_PRED2(contains, refusal_of("a.json", "[{}] x"), "more after the end of the list");
  EXPECT_PRED2(contains, refusal_of("a.json", "hello"),
               "a.json: a .json file must hold a list of rows, or one row per line");
  EXPECT_PRED2(contains, refusal_of("a.json", "{\n  \"data\": [{}, {\"a\": 1}]\n}\n"),
               "a.json: holds one object; a list of rows is expected");
  EXPECT_PRED2(contains, refusal_of("a.json", " {\"a\": \"}\",\r\n \"b\": 1}"), "jq '.data'");
}

TEST_F(RowReaderTest, OtherEncodingsAreRefusedWithTheCommandThatConverts) {
  const auto utf16 = [](std::string_view text, bool little) {
    std::string bytes;
    for (const char letter : text) {
      if (!little) bytes += '\0';
      bytes += letter;
      if (little) bytes += '\0';
    }
    return bytes;
  };
  const auto row = R"({"text": "a"})";
  for (const char* name : {"a.jsonl", "a.json"}) {
    EXPECT_PRED2(contains, refusal_of(name, "\xFF\xFE" + utf16(row, true)),
                 "the file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 ");
    EXPECT_PRED2(contains, refusal_of(name, "\xFE\xFF" + utf16(row, false)), "-f UTF-16 ");
    EXPECT_PRED2(contains, refusal_of(name, utf16(row, true)), "-f UTF-16LE ");
    EXPECT_PRED2(contains, refusal_of(name, utf16(row, false)), "-f UTF-16BE ");
  }
}

// 100 MB that never end: neither kept nor parsed.
TEST_F(RowReaderTest, LongRowsAreNotKept) {
  const std::string inside(100'000'000, 'x');
  EXPECT_EQ(rows("a.jsonl", "{1}\n{\"" + inside + "\"}\n{3}\n"), (Rows{"1 {1}", "2 …", "3 {3}"}));
  EXPECT_EQ(rows("a.json", "[{1},{\"" + inside + "\"},{3}]"), (Rows{"1 {1}", "2 …", "3 {3}"}));
}

}  // namespace
}  // namespace skein::data
