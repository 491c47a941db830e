// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/spike.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace skein::report {
namespace {

TEST(SpikeDetector, TellsAJumpFromNoise) {
  SpikeDetector detector(6);
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(detector.add(3 + 0.05 * std::sin(i))) << i;
  EXPECT_TRUE(detector.add(5));
  EXPECT_FALSE(detector.add(3.02));
  EXPECT_TRUE(detector.add(5));  // the first spike has not become normal
}

TEST(SpikeDetector, IsSilentAtFirstAndWhenOff) {
  SpikeDetector young(6), off(0);
  EXPECT_FALSE(young.add(3));
  EXPECT_FALSE(young.add(300));
  for (int i = 0; i < 40; ++i) off.add(3);
  EXPECT_FALSE(off.add(300));
  EXPECT_FALSE(off.add(std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace
}  // namespace skein::report
