// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/sampling/sampling_options.h"

#include <fmt/format.h>

#include <cmath>

#include "skein/core/error.h"

namespace skein::rollout {
namespace {

void require(bool holds, const char* name, double value, const char* expected) {
  if (!holds) throw UserError(fmt::format("{} is {}, expected {}", name, value, expected));
}

}  // namespace

void SamplingOptions::check() const {
  require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature,
          "0 (greedy) or more");
  require(top_k >= 0, "top_k", static_cast<double>(top_k), "0 (all tokens) or more");
  require(top_p > 0 && top_p <= 1, "top_p", top_p, "above 0 and at most 1");
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "between 0 and 1");
  require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "above 0");
}

}  // namespace skein::rollout
