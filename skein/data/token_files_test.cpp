// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/test_files.h"
#include "skein/data/token_array.h"
#include "skein/data/token_cache.h"
#include "skein/data/token_file.h"

namespace skein::data {
namespace {

using Ids = std::vector<uint32_t>;

std::string llm_c_header(int32_t magic, int32_t version, int32_t count) {
  auto header = bytes_of_words<int32_t>({magic, version, count});
  header.resize(1024);
  return header;
}

class TokenFiles : public TemporaryFolder {
 protected:
  Ids tokens(std::string_view content) const {
    const auto region = locate_tokens(write("a.bin", content));
    const TokenArray array(std::span(&region, 1));
    return array.read(0, array.size());
  }
  std::string refused(std::string_view content) const {
    return refusal<IoError>([&] { tokens(content); });
  }
};

TEST_F(TokenFiles, RawFilesAreLittleEndian16Bit) {
  EXPECT_EQ(tokens(std::string_view("\x01\x00\x00\x01\xff\xff", 6)), (Ids{1, 256, 65535}));
  EXPECT_EQ(tokens(""), Ids{});
  EXPECT_NE(refused("abc").find("3 bytes, an odd"), std::string::npos);
}

TEST_F(TokenFiles, RawFilesOf32BitIdsAreTold) {
  std::string wide, narrow;
  Ids expected;
  for (uint32_t i = 0; i < 100; ++i) {
    expected.push_back(i * 1283);
    wide += bytes_of_words<uint32_t>({expected.back()});
    narrow +=
        bytes_of_words<uint16_t>({static_cast<uint16_t>(i % 4), static_cast<uint16_t>(i % 3)});
  }
  EXPECT_EQ(tokens(wide), expected);
  EXPECT_EQ(tokens(narrow).size(), 200u) << "small 16-bit ids are no 32-bit ones";
}

TEST_F(TokenFiles, SmallIdsOf32BitsAreToldByTheirZeros) {
  std::string wide;
  Ids expected;
  for (uint32_t i = 0; i < 100; ++i) {
    expected.push_back(i % 7);
    wide += bytes_of_words<uint32_t>({expected.back()});
  }
  EXPECT_EQ(tokens(wide), expected);
}

TEST_F(TokenFiles, FilesOf64BitIntegersAreRefused) {
  for (const uint32_t factor : {1u, 501u, 1000000u}) {
    std::string wide;
    for (uint32_t i = 0; i < 70'000; ++i)
      wide += bytes_of_words<uint32_t>({1 + i % 97 * factor, 0});
    EXPECT_NE(refused(wide).find("astype(np.uint16)"), std::string::npos) << factor;
    wide[wide.size() / 2 / 8 * 8 + 4] = 1;
    EXPECT_EQ(refused(wide), "") << "32-bit ids with many zeros";
  }
}

TEST_F(TokenFiles, ShardsOfLlmCOfBothWidths) {
  EXPECT_EQ(tokens(llm_c_header(20240520, 1, 3) + bytes_of_words<uint16_t>({7, 50256, 9})),
            (Ids{7, 50256, 9}));
  EXPECT_EQ(tokens(llm_c_header(20240801, 7, 2) + bytes_of_words<uint32_t>({128000, 9})),
            (Ids{128000, 9}));
}

TEST_F(TokenFiles, HeadersThatDoNotFitAreRefused) {
  const auto body = bytes_of_words<uint16_t>({7, 8, 9});
  for (const int32_t count : {4, 2, 0, -1, INT32_MAX, INT32_MIN}) {
    EXPECT_NE(refused(llm_c_header(20240520, 1, count) + body).find("header promises"),
              std::string::npos)
        << count;
  }
  EXPECT_NE(refused(llm_c_header(20240520, 2, 3) + body).find("version 2"), std::string::npos);
  EXPECT_NE(refused(llm_c_header(20240801, 1, 3) + body).find("version 7 is known"),
            std::string::npos);
  EXPECT_NE(refused(llm_c_header(20240520, 1, 3).substr(0, 100)).find("header promises"),
            std::string::npos);
}

TEST_F(TokenFiles, ArraysReadAcrossFilesAndWidths) {
  const TokenRegion regions[] = {
      {.path = write("a", bytes_of_words<uint16_t>({9, 1, 2})), .offset = 2, .count = 2},
      {.path = write("empty", ""), .count = 0},
      {.path = write("b", bytes_of_words<uint32_t>({70000, 4})),
       .count = 2,
       .width = TokenWidth::k32},
      {.path = write("c", bytes_of_words<uint16_t>({5})), .count = 1}};
  TokenArray array(regions);
  const TokenArray moved = std::move(array);
  ASSERT_EQ(moved.size(), 5);
  const Ids all{1, 2, 70000, 4, 5};
  for (int64_t begin = 0; begin <= 5; ++begin) {
    for (int64_t end = begin; end <= 5; ++end) {
      EXPECT_EQ(moved.read(begin, end - begin), Ids(all.begin() + begin, all.begin() + end));
    }
  }
  std::vector<int64_t> copied(3);
  moved.copy(1, copied);
  EXPECT_EQ(copied, (std::vector<int64_t>{2, 70000, 4}));
  EXPECT_EQ(moved.largest(0, 5), 70000u);
  EXPECT_EQ(moved.largest(3, 5), 5u);
  EXPECT_EQ(moved.first_outside(5), 2);
  EXPECT_EQ(moved.first_outside(70001), 5);
}

TEST_F(TokenFiles, RegionsBeyondTheFileAreRefused) {
  const TokenRegion region{.path = write("a", "abcd"), .count = 3};
  EXPECT_THROW(TokenArray(std::span(&region, 1)), IoError);
}

const std::string kKey(32, 'a');

TEST_F(TokenFiles, PreparedFilesKeepBothWidths) {
  const Ids ids{1, 65535, 3};
  for (const auto width : {TokenWidth::k16, TokenWidth::k32}) {
    const auto path = folder_ / "a.tokens";
    TokenCacheWriter writer(path, width);
    writer.append(std::span(ids).first(1));
    writer.append(std::span(ids).subspan(1));
    const auto written = writer.commit({.documents = 2, .bad_lines = 1, .key = kKey});
    EXPECT_EQ(read_token_cache_header(path, kKey), written);
    EXPECT_EQ(written.largest_token, 65535u);
    EXPECT_EQ(written.digest, content_digest(path, kTokenCacheHeaderBytes, 2, [](uint64_t) {}));
    const auto region = token_cache_region(path, written);
    EXPECT_EQ(TokenArray(std::span(&region, 1)).read(0, 3), ids);
    EXPECT_EQ(fs::file_size(path), 128 + 3 * static_cast<uint64_t>(width));
  }
}

TEST_F(TokenFiles, AnAbandonedPreparedFileIsRemoved) {
  {
    TokenCacheWriter(folder_ / "a.tokens", TokenWidth::k16).append(Ids{1});
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(TokenFiles, DamagedPreparedFilesAreRefused) {
  const auto path = folder_ / "a.tokens";
  {
    TokenCacheWriter writer(path, TokenWidth::k16);
    writer.append(Ids{1, 2, 3});
    writer.commit({.key = kKey});
  }
  const auto good = read_file(path);
  const auto refused_as = [&](std::string content) {
    write_file_atomically(path, content);
    return refusal<IoError>([&] { read_token_cache_header(path, kKey); });
  };
  for (size_t at = 0; at < kTokenCacheHeaderBytes; ++at) {
    auto bad = good;
    bad[at] ^= 1;
    EXPECT_NE(refused_as(bad), "") << "byte " << at;
  }
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(refused_as(good.substr(0, length)), "") << length << " bytes";
  }
  EXPECT_NE(refused_as(good + "x"), "");
  EXPECT_EQ(refused_as(good), "");
  EXPECT_THROW(read_token_cache_header(path, std::string(32, 'b')), IoError);
}

}  // namespace
}  // namespace skein::data
