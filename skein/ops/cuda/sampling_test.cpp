// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The kernel against the CPU reference: the same tokens.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "skein/ops/decode/sampling.h"

namespace skein::ops {
namespace {

const std::vector<SamplingOptions> kOptions{
    {.log_probs = true},
    {.temperature = 0, .log_probs = true},
    {.temperature = 0.3},
    {.temperature = 3, .top_k = 50, .log_probs = true},
    {.top_k = 1},
    {.top_p = 0.9, .log_probs = true},
    {.top_p = 1e-6},
    {.min_p = 0.05},
    {.temperature = 1.3, .top_k = 40, .top_p = 0.8, .min_p = 0.01, .log_probs = true}};

Draws to(const Draws& draws, at::DeviceType device) {
  return {draws.keys.to(device), draws.samples.to(device), draws.positions.to(device),
          draws.seen.defined() ? draws.seen.to(device) : at::Tensor()};
}

void expect_same(const at::Tensor& logits, const SamplingOptions& options, const Draws& draws) {
  const auto cpu = to(draws, at::kCPU), gpu = to(draws, at::kCUDA);
  const auto expected = sample(logits.cpu(), options, cpu);
  const auto found = sample(logits, options, gpu);
  EXPECT_TRUE(found.tokens.cpu().equal(expected.tokens))
      << logits.sizes() << " " << logits.scalar_type() << " " << options.temperature << " "
      << options.top_k << " " << options.top_p;
  const auto far = (found.log_probs.cpu() - expected.log_probs).abs().max().item<double>();
  EXPECT_LT(far, 1e-9);
  if (draws.seen.defined()) {
    EXPECT_TRUE(gpu.seen.cpu().equal(cpu.seen));
  }
}

Draws draws_of(int64_t rows) {
  const auto numbers = at::TensorOptions().dtype(at::kLong);
  return {at::randint(1LL << 60, {rows}, numbers), at::arange(rows, numbers).remainder(7),
          at::arange(rows, numbers) * 3};
}

TEST(CudaSampling, DrawsTheTokensOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(6);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t vocabulary : {1, 5, 257, 1023, 1024, 1025, 50257, 151936}) {
      const int64_t rows = vocabulary > 2000 ? 9 : 70;
      const auto logits = (at::randn({rows, vocabulary}) * 4).to(type).to(at::kCUDA);
      for (const auto& options : kOptions) expect_same(logits, options, draws_of(rows));
    }
  }
}

// Rows of a head whose rows are padded lie apart.
TEST(CudaSampling, TakesRowsThatLieApart) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const auto logits = at::randn({12, 64}, at::kCUDA).narrow(1, 0, 50);
  for (const auto& options : kOptions) expect_same(logits, options, draws_of(12));
}

TEST(CudaSampling, KnowsWhatIsSeen) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const auto logits = at::randn({20, 300}, at::kCUDA) * 3;
  for (auto options : kOptions) {
    options.repetition_penalty = 1.7;
    auto draws = draws_of(20);
    draws.seen = at::randint(2, {20, 300}, at::TensorOptions().dtype(at::kByte));
    expect_same(logits, options, draws);
  }
}

TEST(CudaSampling, TellsOfLogitsThatAreNoNumbers) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  auto logits = at::zeros({4, 2000}, at::kCUDA);
  logits[0][1500] = std::nan("");
  logits[1][3] = HUGE_VAL;
  logits[2].fill_(-HUGE_VAL);
  for (const auto& options : kOptions) {
    const auto found = sample(logits, options, to(draws_of(4), at::kCUDA)).log_probs.cpu();
    for (int64_t row = 0; row < 3; ++row) EXPECT_TRUE(std::isnan(found[row].item<double>()));
    EXPECT_FALSE(std::isnan(found[3].item<double>()));
  }
}

}  // namespace
}  // namespace skein::ops
