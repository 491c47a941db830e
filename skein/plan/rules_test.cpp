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

TEST(Rules, GradientsOfPureBf16StayNarrow) {
  const config::BatchPlan one{.accumulation = 1}, several{.accumulation = 4};
  EXPECT_FALSE(has_wide_gradients({}, one));
  EXPECT_TRUE(has_wide_gradients({}, several));
  EXPECT_FALSE(has_wide_gradients({.pure_bf16 = true}, several));
  EXPECT_TRUE(has_wide_gradients({.pure_bf16 = true, .grad_accum_fp32 = true}, several));
}

TEST(Rules, BytesOfStates) {
  using config::OptimizerKind;
  EXPECT_EQ(state_bytes_each({}, DType::kBF16), 12);
  EXPECT_EQ(state_bytes_each({.pure_bf16 = true}, DType::kBF16), 4);
  EXPECT_EQ(state_bytes_each({.optim = OptimizerKind::kAdamW8bit}, DType::kF32), 2.0625);
}

}  // namespace
}  // namespace skein::plan
