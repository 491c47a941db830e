// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/profile_table.h"

#include <gtest/gtest.h>

namespace skein::report {
namespace {

TEST(ProfileTable, IsPerUpdate) {
  const Profile profile{.updates = "10-11",
                        .num_updates = 2,
                        .ranks = 4,
                        .seconds = 8,
                        .phases = {{"forward", 2}, {"backward", 6}},
                        .seconds_waiting = 1,
                        .num_tokens = 4000,
                        .flops = {{"attention", 3e12}, {"MLP", 13e12}},
                        .peak_flops = 1e12,
                        .peak_memory_bytes = 3 << 19};
  EXPECT_EQ(profile_table(profile),
            "profile of updates 10-11, on the first of 4 ranks, each: 4.000000 s, 500 tokens/s\n"
            "  phase                        seconds     share\n"
            "  forward                     1.000000    25.0 %\n"
            "  backward                    3.000000    75.0 %\n"
            "  all                         4.000000   100.0 %\n"
            "  waiting for collectives     0.500000   inside the phases\n"
            "  component (all ranks)          GFLOP     share\n"
            "  attention                       1500    18.8 %\n"
            "  MLP                             6500    81.2 %\n"
            "  all                             8000   100.0 %\n"
            "  0.5 TFLOP/s on each of 4 ranks, 50.0 % of its peak (MFU)\n"
            "  1.5 MiB at most in weights, gradients and states of this rank\n");
}

TEST(ProfileTable, KnowsNoPeakOfACpu) {
  const auto text = profile_table({.updates = "1", .seconds = 1, .flops = {{"MLP", 1e12}}});
  EXPECT_EQ(text.find("MFU"), std::string::npos);
  EXPECT_NE(text.find("profile of update 1, on the first of 1 rank, each"), std::string::npos);
}

}  // namespace
}  // namespace skein::report
