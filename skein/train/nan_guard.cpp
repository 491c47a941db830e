// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/nan_guard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

std::string describe(const std::vector<int64_t>& samples) {
  constexpr size_t kShown = 16;
  const auto shown =
      std::vector(samples.begin(), samples.begin() + std::min(samples.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), samples.size() > kShown ? ", …" : "");
}

}  // namespace

NanVerdict judge(double grad_norm, config::NanPolicy policy, int64_t step,
                 const std::vector<int64_t>& samples, parallel::Sharded& sharded) {
  if (std::isfinite(grad_norm)) return NanVerdict::kGoOn;
  const auto units = sharded.non_finite_units();
  // Backward runs from the last unit to the first: the last one that is hit is nearest the cause.
  const auto message = fmt::format(
      "step {}: the gradient is not finite, first in {} (samples {}); the update was left out",
      step, units.empty() ? "no single layer: the norm overflowed" : units.back(),
      describe(samples));
  switch (policy) {
    case config::NanPolicy::kStop:
      throw UserError(message +
                      ". Lower learning_rate or max_grad_norm, look at the samples, or go on with "
                      "nan_policy=skip (leave such steps out) or nan_policy=rollback");
    case config::NanPolicy::kSkip:
      log_warning("{}", message);
      return NanVerdict::kGoOn;
    case config::NanPolicy::kRollback:
      log_warning("{}", message);
      return NanVerdict::kRollBack;
  }
  return NanVerdict::kGoOn;
}

}  // namespace skein::train
