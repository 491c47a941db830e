// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Do the sampler and training agree on how likely the sampled tokens were?
//
// Both compute the same weights, on other paths: what differs is rounding. More than that means
// that one of the two is wrong, and that the policy learns from tokens it did not mean to say.

#include <cstdint>

#include "skein/algorithms/metrics.h"
#include "skein/config/run_config.h"
#include "skein/core/dtype.h"

namespace skein::train {

// |log p of the sampler - log p of training|: of float32 and float64 the largest of a record's
// tokens, in 16 bits, where single tokens may differ by far, their mean.
double allowed_gap(DType dtype);

class SamplingGap {
 public:
  SamplingGap(const config::RolloutConfig& rollout, DType dtype)
      : corrects_(rollout.rollout_correction != config::RolloutCorrection::kNone), dtype_(dtype) {}

  // Looks at the numbers of a record, which are alike on all ranks. Beyond the bound it warns,
  // once; beyond ten times the bound it throws UserError, unless rollout_correction answers for it.
  void check(const algorithms::NamedNumbers& numbers, int64_t step, bool is_first);

 private:
  bool corrects_;
  DType dtype_;
  bool warned_ = false;
};

}  // namespace skein::train
