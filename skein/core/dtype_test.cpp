// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/dtype.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

TEST(DType, RowsAreInTheOrderOfTheEnum) {
  EXPECT_EQ(dtype_name(DType::kBool), "BOOL");
  EXPECT_EQ(dtype_name(DType::kF16), "F16");
  EXPECT_EQ(dtype_name(DType::kBF16), "BF16");
  EXPECT_EQ(dtype_name(DType::kU64), "U64");
  EXPECT_EQ(dtype_word(DType::kBF16), "bfloat16");
  EXPECT_EQ(dtype_word(DType::kF32), "float32");
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2U);
  EXPECT_EQ(dtype_bytes(DType::kF64), 8U);
}

TEST(DType, NamesAreReadBack) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_name("F4"));
}

}  // namespace
}  // namespace skein
