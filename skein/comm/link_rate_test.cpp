// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/link_rate.h"

#include <gtest/gtest.h>

namespace skein::comm {
namespace {

TEST(LinkRate, IsMeasuredInEveryPartAtOnce) {
  run_ranks(4, [](Group& world) {
    auto pair = world.split(world.rank() / 2);
    const auto rate = measure_link(pair, world, at::kCPU);
    EXPECT_GT(rate.bytes_per_second, 0);
    EXPECT_GT(rate.latency, 0);
  });
}

// Three nodes cannot all have a partner.
TEST(LinkRate, OneAloneTakesPartWithoutARate) {
  run_ranks(3, [](Group& world) {
    auto part = world.split(world.rank() == 2 ? 1 : 0);
    const auto rate = measure_link(part, world, at::kCPU);
    EXPECT_EQ(rate.bytes_per_second > 0, world.rank() < 2);
  });
}

}  // namespace
}  // namespace skein::comm
