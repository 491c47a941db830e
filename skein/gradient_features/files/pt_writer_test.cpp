// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// tests/parity/gradient_files_test.py lets torch read such files.
#include "skein/gradient_features/files/pt_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "skein/core/testing.h"
#include "skein/report/checksum.h"

namespace skein::gradient_features {
namespace {

class PtWriterTest : public TemporaryFolder {};

uint64_t number(std::string_view bytes, size_t place, size_t count) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + place, count);
  return value;
}

TEST_F(PtWriterTest, SizeIsAnnouncedAndElementsAreAligned) {
  const auto path = folder_ / "all_orig.pt";
  const std::vector<int64_t> shape = {3, 5};
  PtWriter writer(path, DType::kF32, shape);
  std::vector<float> values(15);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 4;
  writer.append(std::span(values).first(4));
  EXPECT_FALSE(fs::exists(path));
  writer.append(std::span(values).subspan(4));
  writer.commit();
  const auto bytes = read_file(path);
  EXPECT_EQ(bytes.size(), pt_file_bytes(path, DType::kF32, shape));
  const std::string content(reinterpret_cast<const char*>(values.data()), 60);
  const auto place = bytes.find(content);
  ASSERT_NE(place, std::string::npos);
  EXPECT_EQ(place % 64, 0U);
  EXPECT_NE(bytes.find("all_orig/data/0"), std::string::npos);
  // The directory's entry of the elements has their checksum.
  const auto entry = bytes.find("all_orig/data/0", place) - 46;
  EXPECT_EQ(number(bytes, entry, 4), 0x02014b50U);
  EXPECT_EQ(number(bytes, entry + 16, 4), report::crc32(content));
  EXPECT_EQ(number(bytes, entry + 20, 4), 60U);
  EXPECT_EQ(number(bytes, bytes.size() - 22, 4), 0x06054b50U);
  EXPECT_EQ(number(bytes, bytes.size() - 22 + 10, 2), 4U);
}

TEST_F(PtWriterTest, NothingIsLeftWithoutCommit) {
  {
    PtWriter writer(folder_ / "x.pt", DType::kF16, {2});
    writer.append(std::vector{1.0F});
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(PtWriterTest, HalvesAreRounded) {
  PtWriter writer(folder_ / "x.pt", DType::kF16, {3});
  writer.append(std::vector{1.0F, -2.0F, 1.00048828125F});
  writer.commit();
  const std::string halves("\x00\x3c\x00\xc0\x00\x3c", 6);
  EXPECT_NE(read_file(folder_ / "x.pt").find(halves), std::string::npos);
}

TEST(ZipLayout, LargeEntriesHaveWideFields) {
  const uint64_t large = (uint64_t{5} << 30) + 3;
  auto layout = lay_out_zip({{"a", 10}, {"b", large}, {"c", 1}});
  for (const auto& entry : layout.entries) {
    EXPECT_EQ(entry.data_begin % 64, 0U);
    EXPECT_EQ(entry.begin + local_header(entry).size(), entry.data_begin);
  }
  const auto header = local_header(layout.entries[1]);
  EXPECT_EQ(number(header, 18, 4), 0xFFFFFFFFU);
  EXPECT_EQ(number(header, 31, 2), 1U);  // behind the name
  EXPECT_EQ(number(header, 35, 8), large);
  EXPECT_EQ(number(header, 43, 8), large);
  const auto text = directory(layout);
  EXPECT_EQ(layout.size(), layout.directory_begin + text.size());
  // "c" begins beyond 4 GiB: of its fields the place alone is wide.
  const auto c = text.find("c\x01", 0);
  ASSERT_NE(c, std::string::npos);
  EXPECT_EQ(number(text, c + 3, 2), 8U);
  EXPECT_EQ(number(text, c + 5, 8), layout.entries[2].begin);
  const auto end = text.size() - 22 - 20 - 56;
  EXPECT_EQ(number(text, end, 4), 0x06064b50U);
  EXPECT_EQ(number(text, end + 48, 8), layout.directory_begin);
  EXPECT_EQ(number(text, end + 56 + 8, 8), layout.directory_begin + end);
}

}  // namespace
}  // namespace skein::gradient_features
