// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// First weights drawn on the GPU against the CPU's.

#include "skein/ops/init.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "skein/ops/device.h"

namespace skein::ops {
namespace {

using tensor::Init;

at::Tensor drawn(int64_t begin, int64_t count, at::ScalarType dtype, at::Device device) {
  auto data = at::empty({count}, at::TensorOptions(device).dtype(dtype));
  initialise(data, begin, {Init::Kind::kNormal, 0.02}, init_key(7, "model.embed_tokens.weight"));
  return data.cpu();
}

// The order of floating-point values as integers: neighbours differ by one.
at::Tensor ordinals(const at::Tensor& values) {
  const auto bits = values.view(values.element_size() == 4 ? at::kInt : at::kShort).to(at::kLong);
  const int64_t sign = int64_t{1} << (8 * values.element_size() - 1);
  return bits.where(bits.ge(0), -sign - bits);
}

TEST(CudaInit, DrawsWhatTheCpuDraws) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kCount = 64'000'000;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto cpu = ordinals(drawn(3, kCount, dtype, at::kCPU));
    const auto gpu = ordinals(drawn(3, kCount, dtype, at::kCUDA));
    const auto difference = (cpu - gpu).abs();
    const auto differing = difference.ne(0).sum().item<int64_t>();
    fmt::print("first weights in {}: {} of {} differ between CPU and GPU\n", c10::toString(dtype),
               differing, kCount);
    EXPECT_LE(differing, kCount / 10'000'000);
    EXPECT_LE(difference.max().item<int64_t>(), 1);
  }
}

TEST(CudaInit, AShardEqualsItsPartOfTheWhole) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto whole = drawn(0, 1000, dtype, at::kCUDA);
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 2}, {3, 9}, {255, 1000}}) {
      EXPECT_TRUE(drawn(begin, end - begin, dtype, at::kCUDA).equal(whole.slice(0, begin, end)));
    }
  }
}

// Prints a figure; what it may be is written in benchmarks/results.
TEST(CudaInit, HowLongEightBillionWeightsTake) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kCount = int64_t{1} << 28, kTurns = 30;
  const auto data = at::empty({kCount}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  const auto draw = [&](int64_t turn) {
    initialise(data, turn * kCount, {Init::Kind::kNormal, 0.02}, init_key(7, "weight"));
  };
  draw(0);
  synchronise(true);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t turn = 0; turn < kTurns; ++turn) draw(turn);
  synchronise(true);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("first weights: {:.2e} bf16 elements in {:.2f} s\n",
             static_cast<double>(kCount * kTurns), seconds.count());
  EXPECT_NEAR(data.to(at::kFloat).std().item<double>(), 0.02, 1e-4);
}

}  // namespace
}  // namespace skein::ops
