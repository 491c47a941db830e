// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/init.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace skein::ops {
namespace {

using tensor::Init;

const Init kUnitNormal{Init::Kind::kNormal, 1.0};

at::Tensor drawn(int64_t begin, int64_t count, const std::string& name = "a") {
  auto data = at::empty({count}, at::kFloat);
  initialise(data, begin, kUnitNormal, init_key(1, name));
  return data;
}

TEST(Init, AShardEqualsItsPartOfTheWhole) {
  const auto whole = drawn(0, 1000);
  for (const auto& [begin, end] : {std::pair{0, 1}, {1, 2}, {3, 9}, {255, 1000}}) {
    EXPECT_TRUE(drawn(begin, end - begin).equal(whole.slice(0, begin, end))) << begin;
  }
}

TEST(Init, NamesGiveDifferentValuesOfTheRightSpread) {
  const auto values = drawn(0, 100'000);
  EXPECT_FALSE(values.equal(drawn(0, 100'000, "b")));
  EXPECT_NEAR(values.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(values.std().item<double>(), 1, 0.02);
}

}  // namespace
}  // namespace skein::ops
