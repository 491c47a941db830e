// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/preview.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/prepare.h"
#include "skein/data/text_pieces.h"

namespace skein::data {
namespace {

class PreviewTest : public TemporaryFolder {
 protected:
  PreviewTest() { data_.data_cache_dir = (folder_ / "cache").string(); }

  Preview look(const std::string& name, std::optional<int64_t> vocab_size = 257) {
    data_.train_file = (folder_ / name).string();
    return preview(find_sources(data_, Split::kTrain), codec_, {.vocab_size = vocab_size});
  }

  int64_t prepared_tokens() { return prepare(data_, codec_, Split::kTrain).tokens.size(); }

  config::DataConfig data_;
  text::ByteCodec codec_;
};

TEST_F(PreviewTest, OnlyTheTextOfJsonLinesIsCounted) {
  write("a.jsonl",
        "{\"source\": \"a long name of where it is from\", \"text\": \"\\u4e2d\"}\n\n"
        "{\"text\": \"ab\"}\n");
  const auto seen = look("a.jsonl");
  EXPECT_EQ(seen.tokens, 3 + 1 + 2 + 1);
  EXPECT_TRUE(seen.exact);
  EXPECT_EQ(prepared_tokens(), seen.tokens);
}

TEST_F(PreviewTest, LongFilesAreExtrapolatedFromWholeLines) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) lines += "{\"id\": 12345, \"text\": \"\\u4e2d\\u6587\"}\n";
  write("long.jsonl", lines);
  const auto seen = look("long.jsonl");
  EXPECT_FALSE(seen.exact);
  EXPECT_EQ(seen.bytes, lines.size());
  EXPECT_NEAR(static_cast<double>(seen.tokens), 40000 * 7, 7);
}

TEST_F(PreviewTest, RefusesWhatPreparationRefuses) {
  write("bad.jsonl", "{\"text\": \"a\"}\n{\"content\": \"b\"}\n");
  write("empty.txt", "");
  write("blank.jsonl", "\n\n");
  for (const char* name : {"bad.jsonl", "empty.txt", "blank.jsonl"}) {
    const auto why = refusal<IoError>([&] { look(name); });
    EXPECT_FALSE(why.empty()) << name;
    EXPECT_EQ(why, refusal<IoError>([&] { prepared_tokens(); })) << name;
  }
  data_.bad_lines = config::BadLines::kSkip;
  data_.train_file = (folder_ / "bad.jsonl").string();
  const auto sources = find_sources(data_, Split::kTrain);
  EXPECT_EQ(preview(sources, codec_, {.bad_lines = config::BadLines::kSkip}).tokens, 2);
}

TEST_F(PreviewTest, IdsThatTheModelDoesNotHaveAreRefused) {
  write("text.txt", "text");
  EXPECT_TRUE(contains(refusal<UserError>([&] { look("text.txt", 200); }),
                       "the model's vocab_size is 200, but the text is read with 257 ids"));
  const std::vector<uint16_t> ids = {1, 2, 300, 4};
  write("ids.bin", {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
  EXPECT_TRUE(contains(refusal<UserError>([&] { look("ids.bin", 300); }), "token 2 has id 300"));
  EXPECT_EQ(look("ids.bin", 301).tokens, 4);
  EXPECT_EQ(look("ids.bin", std::nullopt).tokens, 4);
}

// A sample must not end inside a character.
TEST_F(PreviewTest, ASampleOfTextHasWholeCharacters) {
  for (int shift = 0; shift < 3; ++shift) {
    std::string text(static_cast<size_t>(shift), 'a');
    while (text.size() < (size_t{300} << 10)) text += "中";
    const auto path = write("long.txt", text);
    const auto piece = first_piece(path, uint64_t{256} << 10);
    EXPECT_EQ((piece.end - static_cast<uint64_t>(shift)) % 3, 0U);
    EXPECT_GE(piece.end, (uint64_t{256} << 10) - 2);
    EXPECT_FALSE(piece.is_last);
  }
}

}  // namespace
}  // namespace skein::data
