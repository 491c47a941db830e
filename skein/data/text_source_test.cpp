// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/text_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "skein/core/error.h"

namespace skein::data {
namespace {

class TextSourceTest : public testing::Test {
 protected:
  TextSourceTest() {
    std::string pattern = (fs::temp_directory_path() / "skein-data-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TextSourceTest() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, std::string_view content) const {
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }
  std::vector<int> tokens(const std::string& name, std::string_view content) const {
    const auto array = read_tokens(write(name, content));
    return {array.tokens().begin(), array.tokens().end()};
  }
  template <typename Error>
  std::string refusal(const fs::path& path) const {
    try {
      read_tokens(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  fs::path folder_;
};

TEST_F(TextSourceTest, TextIsOneDocumentOfBytes) {
  EXPECT_EQ(tokens("a.txt", "A\n\xff\n"), (std::vector<int>{65, 10, 255, 10, 256}));
}

TEST_F(TextSourceTest, EachJsonLineIsADocument) {
  EXPECT_EQ(tokens("a.jsonl", "{\"text\": \"AB\"}\r\n\n \t\n{\"text\": \"\"}\n{\"text\": \"C\"}"),
            (std::vector<int>{65, 66, 256, 256, 67, 256}));
}

TEST_F(TextSourceTest, LinesMayCrossChunks) {
  std::string content;
  for (int i = 0; i < 3; ++i) content += "{\"text\": \"" + std::string(700'000, 'a' + i) + "\"}\n";
  const auto array = read_tokens(write("a.jsonl", content));
  ASSERT_EQ(array.tokens().size(), 3u * 700'001);
  EXPECT_EQ(array.tokens()[700'001], 'b');
  EXPECT_EQ(array.tokens()[2 * 700'001 + 699'999], 'c');
}

TEST_F(TextSourceTest, BinaryIsLittleEndian) {
  EXPECT_EQ(tokens("a.bin", std::string_view("\x01\x00\x00\x01\xff\xff", 6)),
            (std::vector<int>{1, 256, 65535}));
}

TEST_F(TextSourceTest, MovedArraysKeepTheirTokens) {
  auto mapped = read_tokens(write("a.bin", "abcd"));
  auto owned = read_tokens(write("a.txt", "x"));
  const TokenArray mapped_there = std::move(mapped), owned_there = std::move(owned);
  EXPECT_EQ(mapped_there.tokens()[1], 'c' | 'd' << 8);
  EXPECT_EQ(owned_there.tokens()[0], 'x');
}

TEST_F(TextSourceTest, BrokenLinesAreNamed) {
  const auto path = write("a.jsonl", "{\"text\": \"A\"}\n\n{\"text\": 3}\n");
  const auto message = refusal<IoError>(path);
  EXPECT_EQ(message.find(path.string() + ":3: \"text\" must be a string"), 0u) << message;
}

TEST_F(TextSourceTest, TooLongLinesAreRefused) {
  const auto path = folder_ / "a.jsonl";
  File::create(path).resize(kMaxLineBytes + 1);  // a hole: takes no space
  EXPECT_NE(refusal<IoError>(path).find(":1: the line is longer than 64 MiB"), std::string::npos);
}

TEST_F(TextSourceTest, WhatCannotBeTrainedOnIsRefused) {
  EXPECT_NE(refusal<IoError>(write("a.bin", "abc")).find("3 bytes, an odd"), std::string::npos);
  for (const auto* name : {"empty.txt", "empty.jsonl", "empty.bin"}) {
    EXPECT_NE(refusal<IoError>(write(name, "")).find("no data"), std::string::npos);
  }
  EXPECT_NE(refusal<IoError>(write("blank.jsonl", "\n\n")).find("no data"), std::string::npos);
  EXPECT_NE(refusal<IoError>(write("b.bin", "ab")).find("only one token"), std::string::npos);
  EXPECT_NE(refusal<UserError>(folder_ / "none.txt").find("does not exist"), std::string::npos);
  EXPECT_NE(refusal<UserError>(write("a.csv", "x")).find(".jsonl"), std::string::npos);
  fs::create_directory(folder_ / "folder.txt");
  EXPECT_NE(refusal<UserError>(folder_ / "folder.txt").find("regular file"), std::string::npos);
}

}  // namespace
}  // namespace skein::data
