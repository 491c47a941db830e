// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/text_stream.h"

#include <gtest/gtest.h>

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

using Strings = std::vector<std::string>;

// Byte by byte; every piece must be whole.
std::string stream_bytes(TextStream& stream, std::string_view bytes) {
  std::string shown;
  for (const char byte : bytes) {
    const auto piece = stream.add(std::string_view(&byte, 1));
    EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
    shown += piece;
  }
  return shown;
}

TEST(TextStream, NeverShowsHalfACharacter) {
  TextStream stream;
  EXPECT_EQ(stream.add("a\xE4"), "a");
  EXPECT_EQ(stream.add("\xBD"), "");
  EXPECT_EQ(stream.add("\xA0"
                       "b"),
            "你b");
  TextStream other;
  EXPECT_EQ(stream_bytes(other, "héllo 世界 🙂"), "héllo 世界 🙂");
}

TEST(TextStream, BytesThatFormNoCharacterAreReplaced) {
  TextStream stream;
  EXPECT_EQ(stream.add("a\xFF\x80z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(stream.add("\xF0\x9F"), "");
  EXPECT_EQ(stream.add("x"), "\uFFFDx");
  EXPECT_EQ(stream.add("\xE4\xBD"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(TextStream, EndsBeforeTheFirstStop) {
  const Strings stops{"", "END", "\n\n"};
  TextStream stream(stops);
  EXPECT_EQ(stream_bytes(stream, "one\ntwo\n\nthree END"), "one\ntwo");
  EXPECT_TRUE(stream.is_stopped());
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, HoldsBackOnlyWhatMayBeginAStop) {
  const Strings stops{"ENDE"};
  TextStream stream(stops);
  EXPECT_EQ(stream.add("the EN"), "the ");
  EXPECT_EQ(stream.add("TER"), "ENTER");
  EXPECT_EQ(stream.add("EN"), "");
  EXPECT_EQ(stream.finish(), "EN");
  EXPECT_FALSE(stream.is_stopped());
}

TEST(TextStream, AStopMayBeginInsideAToken) {
  const Strings stops{"。"};
  TextStream stream(stops);
  EXPECT_EQ(stream_bytes(stream, "你好。再见"), "你好");
}

}  // namespace
}  // namespace skein::text
