// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/sampling_gap.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::train {
namespace {

algorithms::NamedNumbers numbers(double mean, double most) {
  return {{"sampling/sampling_logp_difference/mean", mean},
          {"sampling/sampling_logp_difference/max", most}};
}

std::string refused(DType dtype, double mean, double most,
                    config::RolloutCorrection correction = config::RolloutCorrection::kNone) {
  SamplingGap gap({.rollout_correction = correction}, dtype);
  return refusal<UserError>([&] { gap.check(numbers(mean, most), 7, /*is_first=*/true); });
}

TEST(SamplingGap, EndsARunWhoseSamplerIsWrong) {
  EXPECT_EQ(refused(DType::kF32, 1, 0.9e-4), "");
  EXPECT_EQ(refused(DType::kF32, 0, 0.9e-3), "") << "a warning";
  EXPECT_PRED2(contains, refused(DType::kF32, 0, 1.1e-3),
               "step 7: sampler and training disagree on the log-probabilities of the sampled "
               "tokens: sampling/sampling_logp_difference/max is 0.0011");
  EXPECT_EQ(refused(DType::kBF16, 0.19, 5), "");
  EXPECT_PRED2(contains, refused(DType::kBF16, 0.21, 0), "rounding alone stays below 0.02");
  EXPECT_EQ(refused(DType::kBF16, 0.21, 0, config::RolloutCorrection::kTruncate), "");
}

TEST(SamplingGap, NothingWasSampled) {
  SamplingGap gap({}, DType::kF32);
  gap.check({{"loss", 1}}, 1, true);
}

}  // namespace
}  // namespace skein::train
