// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/sampling/sampling_options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "skein/core/error.h"

namespace skein::rollout {
namespace {

TEST(SamplingOptions, RefusesWhatIsOutOfRange) {
  const auto check = [](const SamplingOptions& options) { options.check(); };
  EXPECT_NO_THROW(check({}));
  EXPECT_NO_THROW(check({.temperature = 0}));
  EXPECT_THROW(check({.temperature = -1}), UserError);
  EXPECT_THROW(check({.temperature = std::nan("")}), UserError);
  EXPECT_THROW(check({.top_k = -1}), UserError);
  EXPECT_THROW(check({.top_p = 0}), UserError);
  EXPECT_THROW(check({.top_p = 1.1}), UserError);
  EXPECT_THROW(check({.min_p = -0.1}), UserError);
  EXPECT_THROW(check({.repetition_penalty = 0}), UserError);
}

}  // namespace
}  // namespace skein::rollout
