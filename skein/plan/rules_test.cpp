// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rules.h"

#include <gtest/gtest.h>

namespace skein::plan {
namespace {

TEST(Rules, WithoutTrainingTheFilesDecideTheType) {
  const Place cpu, gpu{.device = config::Device::kCuda};
  const Place old_gpu{.device = config::Device::kCuda, .has_bfloat16 = false};
  for (const char* narrow : {"bfloat16", "float16"}) {
    EXPECT_EQ(inference_dtype({}, narrow, gpu), DType::kBF16);
    EXPECT_EQ(inference_dtype({}, narrow, old_gpu), DType::kF32);
    EXPECT_EQ(inference_dtype({}, narrow, cpu), DType::kF32);
  }
  for (const char* wide : {"float32", ""}) {
    EXPECT_EQ(inference_dtype({}, wide, gpu), DType::kF32);
    EXPECT_EQ(inference_dtype(DType::kBF16, wide, cpu), DType::kBF16);
  }
  EXPECT_EQ(inference_dtype(DType::kF64, "bfloat16", gpu), DType::kF64);
}

}  // namespace
}  // namespace skein::plan
