// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/wire.h"

#include <gtest/gtest.h>

#include "skein/report/checksum.h"

namespace skein::report {
namespace {

using std::string_literals::operator""s;

TEST(Checksum, KnownAnswers) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32(std::string(32, '\0')), 0x190A55ADU);
  EXPECT_EQ(crc32(std::string(1000, 'a')), 0x9A38DA03U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Checksum, PartsGiveTheSameAsTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7 + i / 11);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32(text.substr(cut), crc32(text.substr(0, cut))), crc32(text)) << cut;
  }
  // Long ones are folded where the processor can, single bytes never.
  uint32_t byte_by_byte = 0;
  for (size_t length = 1; length <= text.size(); ++length) {
    byte_by_byte = crc32(text.substr(length - 1, 1), byte_by_byte);
    EXPECT_EQ(crc32(text.substr(0, length)), byte_by_byte) << length;
  }
}

TEST(Checksum, MaskRotatesAndAdds) {
  // 0xE3069283 rotated right by 15 bits is 0x2507C60D.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507C60DU + 0xA282EAD8U);
}

TEST(Wire, Varints) {
  EXPECT_EQ(WireMessage().integer(1, 0).bytes(), "\x08\x00"s);
  EXPECT_EQ(WireMessage().integer(1, 127).bytes(), "\x08\x7F"s);
  EXPECT_EQ(WireMessage().integer(1, 150).bytes(), "\x08\x96\x01"s);
  EXPECT_EQ(WireMessage().integer(1, -1).bytes(), "\x08" + std::string(9, '\xFF') + "\x01");
}

TEST(Wire, FieldsAboveFifteenTakeTwoBytes) {
  EXPECT_EQ(WireMessage().text(16, "x").bytes(), "\x82\x01\x01x"s);
}

TEST(Wire, RealsTextAndMessages) {
  EXPECT_EQ(WireMessage().real(1, 1.0).bytes(), "\x09\x00\x00\x00\x00\x00\x00\xF0\x3F"s);
  EXPECT_EQ(WireMessage().real32(2, 1.0F).bytes(), "\x15\x00\x00\x80\x3F"s);
  EXPECT_EQ(WireMessage().text(2, "testing").bytes(), "\x12\x07testing"s);
  EXPECT_EQ(WireMessage().message(3, WireMessage().integer(1, 150)).bytes(),
            "\x1A\x03\x08\x96\x01"s);
}

}  // namespace
}  // namespace skein::report
