// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/float_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace skein::convert {
namespace {

uint16_t stored(float value, DType dtype) {
  uint16_t bits = 0;
  from_floats(std::span(&value, 1), dtype, std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

float read(uint16_t bits, DType dtype) {
  float value = 0;
  to_floats(dtype, std::as_bytes(std::span(&bits, 1)), std::span(&value, 1));
  return value;
}

// What a half means, from its definition.
double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(FloatValues, EveryHalfIsReadAndWrittenBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = read(half, DType::kF16);
    if ((half & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(value), (half & 0x3ff) != 0) << bits;
      EXPECT_EQ(std::isnan(read(stored(value, DType::kF16), DType::kF16)), std::isnan(value));
      continue;
    }
    ASSERT_EQ(value, half_value(half)) << bits;
    ASSERT_EQ(stored(value, DType::kF16), half) << bits;
  }
}

// Halfway between neighbours the even one is taken, just beside it the nearer one.
TEST(FloatValues, HalvesAreRoundedOnceToTheNearest) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const auto next = static_cast<uint16_t>(half + 1);
    const auto middle = static_cast<float>((half_value(half) + half_value(next)) / 2);
    ASSERT_EQ(stored(middle, DType::kF16), half % 2 == 0 ? half : next) << half;
    ASSERT_EQ(stored(std::nextafter(middle, 0.0F), DType::kF16), half) << half;
    ASSERT_EQ(stored(std::nextafter(middle, 1e6F), DType::kF16), next) << half;
  }
}

TEST(FloatValues, EveryBrainFloatIsReadAndWrittenBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto brain = static_cast<uint16_t>(bits);
    const float value = read(brain, DType::kBF16);
    ASSERT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    if (std::isnan(value)) continue;
    ASSERT_EQ(stored(value, DType::kBF16), brain);
  }
  EXPECT_TRUE(
      std::isnan(read(stored(std::bit_cast<float>(0x7f800001U), DType::kBF16), DType::kBF16)));
  EXPECT_EQ(stored(std::bit_cast<float>(0x3f808000U), DType::kBF16), 0x3f80);  // ties to even
  EXPECT_EQ(stored(std::bit_cast<float>(0x3f818000U), DType::kBF16), 0x3f82);
  EXPECT_EQ(stored(std::bit_cast<float>(0x3f808001U), DType::kBF16), 0x3f81);
}

TEST(FloatValues, CountsWhatDoesNotFit) {
  const std::vector<float> values = {65504, 65519.996F, 65520, -1e6F, INFINITY, 1};
  std::vector<std::byte> bytes(values.size() * 2);
  EXPECT_EQ(from_floats(values, DType::kF16, bytes), 2U);
  const std::vector<float> large = {std::numeric_limits<float>::max(), 1e38F};
  bytes.resize(4);
  EXPECT_EQ(from_floats(large, DType::kBF16, bytes), 1U);
}

TEST(FloatValues, WiderTypes) {
  const std::vector<double> doubles = {1.0 / 3, -2};
  std::vector<float> values(2);
  to_floats(DType::kF64, std::as_bytes(std::span(doubles)), values);
  EXPECT_EQ(values, (std::vector<float>{1.0F / 3, -2}));
  std::vector<float> copied(2);
  from_floats(values, DType::kF32, std::as_writable_bytes(std::span(copied)));
  EXPECT_EQ(copied, values);
  EXPECT_FALSE(has_float_values(DType::kI64));
  EXPECT_FALSE(has_float_values(DType::kF8E4M3));
}

}  // namespace
}  // namespace skein::convert
