// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

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

// More elements than one task has, and a begin inside a Philox call.
TEST(Init, NoNumberOfThreadsChangesAnyBit) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = drawn(3, 1'000'003);
  at::set_num_threads(3);
  const auto three = drawn(3, 1'000'003);
  at::set_num_threads(before);
  EXPECT_TRUE(one.equal(three));
}

// Computed apart, from the definition of Philox and of the transform: first weights are part of
// every recorded run and must never change.
TEST(Init, KnownAnswers) {
  auto data = at::empty({8}, at::kFloat);
  initialise(data, 0, {Init::Kind::kNormal, 0.02}, 0x123456789abcdef);
  const float expected[] = {0x1.208a26p-9F,  -0x1.0728dcp-6F, -0x1.6c4c0ap-5F, 0x1.8a65a4p-8F,
                            -0x1.f36fd6p-8F, 0x1.03fac6p-6F,  -0x1.2049d6p-7F, -0x1.a66598p-6F};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(data[i].item<float>(), expected[i]) << i;
}

TEST(Init, UniformValuesFillTheirRange) {
  const auto uniform = [](int64_t begin, int64_t count) {
    auto data = at::empty({count}, at::kFloat);
    initialise(data, begin, {Init::Kind::kUniform, 0.5}, init_key(1, "a"));
    return data;
  };
  const auto values = uniform(0, 100'000);
  EXPECT_LT(values.abs().max().item<double>(), 0.5);
  EXPECT_GT(values.abs().max().item<double>(), 0.499);
  EXPECT_NEAR(values.mean().item<double>(), 0, 0.005);
  EXPECT_NEAR(values.std().item<double>(), 0.5 / std::sqrt(3.0), 0.005);
  EXPECT_TRUE(uniform(77, 900).equal(values.slice(0, 77, 977)));
}

TEST(Init, SixteenBitsAreRoundedFromFp32) {
  auto data = at::empty({1001}, at::kBFloat16);
  initialise(data, 2, kUnitNormal, init_key(1, "a"));
  EXPECT_TRUE(data.equal(drawn(2, 1001).to(at::kBFloat16)));
}

}  // namespace
}  // namespace skein::ops
