// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/sampling_gap.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

constexpr double kMostOfWide = 1e-4, kMeanOfNarrow = 0.02;
constexpr double kTooMuch = 10;  // times the bound

bool is_wide(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

}  // namespace

double allowed_gap(DType dtype) { return is_wide(dtype) ? kMostOfWide : kMeanOfNarrow; }

void SamplingGap::check(const algorithms::NamedNumbers& numbers, int64_t step, bool is_first) {
  const std::string name =
      fmt::format("sampling/sampling_logp_difference/{}", is_wide(dtype_) ? "max" : "mean");
  const auto found = std::ranges::find(numbers, name, &std::pair<std::string, double>::first);
  if (found == numbers.end() || found->second <= allowed_gap(dtype_)) return;
  const auto text = fmt::format(
      "step {}: sampler and training disagree on the log-probabilities of the sampled tokens: {} "
      "is {:.3g}, and rounding alone stays below {:g}",
      step, name, found->second, allowed_gap(dtype_));
  if (found->second > kTooMuch * allowed_gap(dtype_) && !corrects_) {
    throw UserError(fmt::format(
        "{}. The policy would learn from tokens that it did not mean to say: this is an error of "
        "skein, please report it; rollout_correction=truncate goes on with weights that make up "
        "for it",
        text));
  }
  if (!warned_ && is_first) {
    log_warning("{}{}", text,
                corrects_ ? "; rollout_correction makes up for it"
                          : "; rollout_correction=truncate makes up for it");
  }
  warned_ = true;
}

}  // namespace skein::train
