// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string why_refused(const std::string& json, uint64_t data_bytes) {
  return refusal<IoError>([&] { parse_header(json, data_bytes, "f"); });
}

#define EXPECT_REFUSED(json, bytes, part) \
  EXPECT_NE(why_refused(json, bytes).find(part), std::string::npos) << why_refused(json, bytes)

TEST(Safetensors, BuiltHeaderIsReadBack) {
  std::vector<PlacedTensor> placed;
  const auto bytes = build_header({{"b", DType::kF32, {2, 3}},
                                   {"a", DType::kF32, {}},
                                   {"half", DType::kBF16, {3}},
                                   {"long", DType::kI64, {1}},
                                   {"none", DType::kF32, {0, 4}}},
                                  placed);
  EXPECT_EQ(bytes.size() % 8, 0U);
  const auto header = parse_header(std::string_view(bytes).substr(8), 8 + 4 + 24 + 6, "f");
  ASSERT_EQ(header.tensors.size(), 5U);
  EXPECT_EQ(header.data_begin, bytes.size());
  EXPECT_EQ(header.metadata.at("format"), "pt");
  std::vector<std::string> names;
  for (const auto& tensor : placed) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"long", "a", "b", "none", "half"}));
  EXPECT_EQ(placed[2].begin, 12U);
  EXPECT_EQ(placed[2].end, 36U);
}

// What the reference writer (safetensors 0.8) gives for the same tensors.
TEST(Safetensors, HeaderBytesAreThoseOfTheReferenceWriter) {
  std::vector<PlacedTensor> placed;
  const auto bytes =
      build_header({{"w", DType::kBF16, {2}}, {"v\"\u00e9", DType::kF32, {1, 1}}}, placed);
  EXPECT_EQ(bytes.substr(8),
            R"({"__metadata__":{"format":"pt"},"v\"é":{"dtype":"F32","shape":[1,1],)"
            R"("data_offsets":[0,4]},"w":{"dtype":"BF16","shape":[2],)"
            R"("data_offsets":[4,8]}})" +
                std::string(7, ' '));
}

TEST(Safetensors, HostileShapesAreRefusedByName) {
  for (const std::string shape :
       {"[4294967296,4294967296]", "[9223372036854775810,2]", "[-1]", "[1e308]", "[1.0]", "[\"1\"]",
        "[18446744073709551616]", "[[1]]", "[0,18446744073709551615]", "[4611686018427387904]",
        "[1,1,1,1,1,1,1,1,1]", "null", "4", "[true]"}) {
    EXPECT_REFUSED("{" + entry("evil", "F32", shape, "[0,4]") + "}", 4, "'evil'");
  }
  const std::string ones = fmt::format("[{}1]", [] {
    std::string s;
    for (int i = 0; i < 63; ++i) s += "1,";
    return s;
  }());
  EXPECT_REFUSED("{" + entry("evil", "F32", ones, "[0,4]") + "}", 4, "dimensions");
}

TEST(Safetensors, HostileOffsetsAreRefused) {
  const auto two = [](const std::string& a, const std::string& b) {
    return "{" + entry("a", "U8", "[4]", a) + "," + entry("b", "U8", "[4]", b) + "}";
  };
  EXPECT_EQ(why_refused(two("[0,4]", "[4,8]"), 8), "");
  EXPECT_REFUSED(two("[0,4]", "[2,6]"), 8, "overlaps");
  EXPECT_REFUSED(two("[0,4]", "[0,4]"), 8, "overlaps");
  EXPECT_REFUSED(two("[0,4]", "[5,9]"), 9, "gap");
  EXPECT_REFUSED(two("[4,0]", "[4,8]"), 8, "ends before");
  EXPECT_REFUSED(two("[0,4]", "[4,8]"), 7, "data section ends");
  EXPECT_REFUSED(two("[0,4]", "[4,8]"), 9, "after the last");
  EXPECT_REFUSED(two("[0,4]", "[4,9]"), 9, "needs 4 bytes");
  EXPECT_REFUSED(two("[0,4]", "[18446744073709551612,18446744073709551616]"), 8, "'b'");
  EXPECT_REFUSED(two("[0,4]", "[4]"), 8, "two numbers");
  EXPECT_REFUSED(two("[0,4]", "[4,8,8]"), 8, "where none belongs");
}

TEST(Safetensors, HostileTextIsRefused) {
  const auto good = entry("a", "U8", "[1]", "[0,1]");
  EXPECT_REFUSED("{" + good + "," + good + "}", 1, "twice");
  EXPECT_REFUSED(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                 "twice");
  EXPECT_REFUSED(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "absent");
  EXPECT_REFUSED(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
                 "none belongs");
  EXPECT_REFUSED("{" + entry("a", "F4", "[2]", "[0,1]") + "}", 1, "F4");
  EXPECT_REFUSED(R"({"__metadata__":{"a":1},)" + good + "}", 1, "none belongs");
  EXPECT_REFUSED(R"({"__metadata__":{"a":"1","a":"2"},)" + good + "}", 1, "duplicate");
  EXPECT_REFUSED("{" + good, 1, "not JSON");
  EXPECT_REFUSED("{" + good + "} x", 1, "not JSON");
  EXPECT_REFUSED("{" + good + "}" + std::string(1, '\0') + "{}", 1, "zero byte");
  EXPECT_REFUSED("[]", 0, "begin with");
  EXPECT_REFUSED("", 0, "begin with");
  EXPECT_REFUSED("{\"\xff\":1}", 0, "not JSON");
  EXPECT_REFUSED("{\"" + std::string(5000, 'n') + "\":1}", 0, "5000");
  EXPECT_REFUSED(R"({"a":)" + std::string(1'000'000, '['), 0, "none belongs");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";
  EXPECT_REFUSED(deep, 0, "none belongs");
}

class SafetensorsFileTest : public TemporaryFolder {
 protected:
  // A file of `size` bytes (sparse) whose length field says `length`.
  bool is_refused(uint64_t length, uint64_t size) {
    const auto file = File::create(folder_ / "x.safetensors");
    file.resize(size);
    file.write_at(0, std::as_bytes(std::span(&length, 1)).first(std::min<uint64_t>(size, 8)));
    return contains(refusal<IoError>([&] { read_header(file, "x.safetensors"); }), "x.safetensors");
  }
};

TEST_F(SafetensorsFileTest, HostileLengthsAreRefused) {
  const uint64_t size = 4096;
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{7}, uint64_t{1} << 63, ~uint64_t{0}, size - 7}) {
    EXPECT_TRUE(is_refused(length, size)) << length;
  }
  EXPECT_TRUE(is_refused(kMaxHeaderBytes + 1, 2 * kMaxHeaderBytes));
  for (const uint64_t short_size : {0, 1, 7, 8}) EXPECT_TRUE(is_refused(2, short_size));
}

}  // namespace
}  // namespace skein::checkpoint
