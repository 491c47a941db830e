// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/nf4.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "skein/ops/linear.h"
#include "skein/ops/nf4_kernel.h"
#include "skein/tensor/test_allocations.h"

namespace skein::ops {
namespace {

at::Tensor packed(const at::Tensor& values, bool doubly) {
  const auto flat = values.reshape({-1}).to(at::kFloat);
  return quantise_nf4(
      {.numel = flat.numel(), .doubly = doubly},
      [&](int64_t begin, const at::Tensor& out) { out.copy_(flat.narrow(0, begin, out.numel())); });
}

Nf4Matrix matrix_of(const at::Tensor& values, bool doubly) {
  return {.rows = values.size(0), .columns = values.size(1), .doubly = doubly};
}

at::Tensor there_and_back(const at::Tensor& values, bool doubly) {
  return dequantise_nf4(packed(values, doubly), matrix_of(values, doubly), at::kFloat);
}

TEST(Nf4Layout, CountsTheBytesOfItsParts) {
  const Nf4Layout plain{.numel = 4096 * 4096, .doubly = false};
  EXPECT_EQ(plain.bytes(), 4096 * 4096 / 2 + 4096 * 4096 / 64 * 4);
  const Nf4Layout twice{.numel = 4096 * 4096};
  EXPECT_EQ(twice.bytes(), 4096 * 4096 / 2 + 4096 * 4096 / 64 + 4096 * 4096 / 64 / 256 * 4 + 4);
  // A last block that is not whole has a scale too, and parts begin at multiples of 16 bytes.
  const Nf4Layout odd{.numel = 67};
  EXPECT_EQ(odd.num_scales(), 2);
  EXPECT_EQ(odd.scales_begin(), 48);
  EXPECT_EQ(odd.outer_begin(), 64);
  EXPECT_EQ(odd.bytes(), 64 + 4 + 4);
}

TEST(Nf4Values, AreThoseOfTheTypes) {
  constexpr auto kValues = nf4_values();
  for (size_t i = 1; i < 16; ++i) EXPECT_LT(kValues.of_code[i - 1], kValues.of_code[i]);
  for (size_t i = 1; i < 256; ++i) EXPECT_LT(kValues.of_scale[i - 1], kValues.of_scale[i]) << i;
  EXPECT_EQ(kValues.of_scale[127], 0);
  EXPECT_FLOAT_EQ(kValues.of_scale[128], 5.5e-7F);
  EXPECT_FLOAT_EQ(kValues.of_scale[129], 3.25e-6F);
  EXPECT_FLOAT_EQ(kValues.of_scale[254], 0.99296875F);
  EXPECT_FLOAT_EQ(kValues.of_scale[0], -0.99296875F);
}

// What the type can say, it says exactly: shares of the largest element of a block.
TEST(Nf4, ValuesOfTheTypeStayAsTheyAre) {
  constexpr auto kValues = nf4_values();
  auto values = at::zeros({3, 64});
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < 64; ++i) {
      values[row][i] = kValues.of_code[(i * 7 + row) % 16] * static_cast<float>(1 << row);
    }
  }
  EXPECT_TRUE(there_and_back(values, false).equal(values));
}

TEST(Nf4, PutsTheFirstElementIntoTheUpperHalf) {
  auto values = at::zeros({1, 64});
  values[0][0] = -2;  // the least: 0
  values[0][1] = 2;   // the largest: 15
  const auto bytes = packed(values, false);
  EXPECT_EQ(bytes[0].item<int>(), 0x0F);
  EXPECT_EQ(bytes[1].item<int>(), 0x77);  // zeros
  float scale = 0;
  std::memcpy(&scale, bytes.const_data_ptr<uint8_t>() + 32, 4);
  EXPECT_EQ(scale, 2);
}

// An element lies within half of the widest gap between neighbours, times its block's scale.
TEST(Nf4, ErrorsAreThoseOfTheGrid) {
  const auto values = at::randn({37, 96}) * 0.02;
  for (const bool doubly : {false, true}) {
    const auto back = there_and_back(values, doubly);
    const auto scales = values.view({-1, 32}).abs();  // 37 · 96 / 64 is not whole
    const double bound = scales.max().item<double>() * (1 - 0.6961928) / 2 * (doubly ? 1.05 : 1);
    EXPECT_LE((back - values).abs().max().item<double>(), bound);
    EXPECT_LT(((back - values).norm() / values.norm()).item<double>(), 0.1);
    EXPECT_GT(((back - values).norm() / values.norm()).item<double>(), 0.05);
  }
}

TEST(Nf4, ZerosStayZeros) {
  for (const bool doubly : {false, true}) {
    EXPECT_TRUE(there_and_back(at::zeros({5, 64}), doubly).equal(at::zeros({5, 64})));
  }
}

// One that is not a number must not become an innocent one.
TEST(Nf4, WhatIsNotANumberShows) {
  auto values = at::randn({4, 64});
  values[2][9] = std::numeric_limits<float>::quiet_NaN();
  const auto back = there_and_back(values, false);
  EXPECT_TRUE(std::isnan(back[2][9].item<float>()));
  EXPECT_FALSE(back[1].isnan().any().item<bool>());
  EXPECT_TRUE(there_and_back(values, true)[2][9].isnan().item<bool>());
}

// Several pieces, the last one not whole: the bytes of each do not depend on threads or pieces.
TEST(Nf4, IsTheSameForAnyNumberOfThreads) {
  const auto values = at::randn({3, (int64_t{3} << 20) + 40});
  const int threads = at::get_num_threads();
  const auto many = packed(values, true);
  at::set_num_threads(1);
  const auto one = packed(values, true);
  at::set_num_threads(threads);
  EXPECT_TRUE(many.equal(one));
  const auto first = packed(values[0].view({1, -1}), false);
  const auto whole = packed(values, false);
  EXPECT_TRUE(whole.narrow(0, 0, 1 << 20).equal(first.narrow(0, 0, 1 << 20)));
}

TEST(Nf4, RoundsOnceToTheTypeThatIsAskedFor) {
  const auto values = at::randn({16, 48});
  const auto bytes = packed(values, true);
  const auto matrix = matrix_of(values, true);
  const auto wide = dequantise_nf4(bytes, matrix, at::kFloat);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(dequantise_nf4(bytes, matrix, dtype).equal(wide.to(dtype)));
  }
}

// Layers in 4 bits, with and without a low-rank part, with a bias and turned round, against the
// same layers with the values that the bits stand for.
TEST(Linears, WeightsInFourBitsAreTheirValues) {
  const auto x = at::randn({2, 5, 64}).set_requires_grad(true);
  const auto a = at::randn({4, 64}).set_requires_grad(true);
  const auto b = at::randn({24, 4}).set_requires_grad(true);
  const auto bias = at::randn({24}).set_requires_grad(true);
  const auto first = at::randn({24, 64}), second = at::randn({64, 24}), third = at::randn({16, 64});
  auto turned = matrix_of(second, true);
  turned.transposed = true;
  const LowRank part{.a = a, .b = b, .scale = 0.5};
  const auto found =
      linears(x, {{packed(first, true), {}, part, matrix_of(first, true)},
                  {packed(second, true), bias, std::nullopt, turned},
                  {packed(third, false), {}, std::nullopt, matrix_of(third, false)}});
  const auto expected = linears(x, {{there_and_back(first, true), {}, part},
                                    {there_and_back(second, true).t(), bias, std::nullopt},
                                    {there_and_back(third, false), {}, std::nullopt}});
  const auto gradients = [&](const std::vector<at::Tensor>& y) {
    return torch::autograd::grad({y[0].pow(2).sum() + y[1].pow(2).sum() + y[2].pow(3).sum()},
                                 {x, a, b, bias});
  };
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
  const auto got = gradients(found), wanted = gradients(expected);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(wanted[i])) << i;
}

TEST(Linears, AWeightInFourBitsAloneHasAnInputGradient) {
  const auto x = at::randn({3, 64}).set_requires_grad(true);
  const auto weight = at::randn({8, 64});
  const auto y = linears(x, {{packed(weight, true), {}, std::nullopt, matrix_of(weight, true)}})[0];
  const auto got = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_TRUE(got.allclose(there_and_back(weight, true).sum(0).expand({3, 64}), 1e-5, 1e-5));
}

// Of four layers one's values exist at a time, in forward, while backward waits, and in backward.
TEST(Linears, OneWeightInFourBitsHasValuesAtATime) {
  constexpr int64_t kSize = 256, kValues = kSize * kSize * 4, kActivation = 4 * kSize * 4;
  const auto x = at::randn({4, kSize}).set_requires_grad(true);
  std::vector<LinearParameters> layers;
  for (int i = 0; i < 4; ++i) {
    const auto weight = at::randn({kSize, kSize});
    layers.push_back({packed(weight, true), {}, std::nullopt, matrix_of(weight, true)});
  }
  const tensor::AllocationMeter forward;
  const auto y = linears(x, layers);
  EXPECT_GE(forward.peak_bytes(), kValues);
  EXPECT_LT(forward.peak_bytes(), kValues + 16 * kActivation);
  EXPECT_LT(forward.live_bytes(), 8 * kActivation);
  const auto loss = y[0].sum() + y[1].sum() + y[2].sum() + y[3].sum();
  // On this thread, as the unit boundary runs it: the meter sees no other.
  const tensor::AllocationMeter backward;
  torch::autograd::grad({loss}, {x});
  EXPECT_LT(backward.peak_bytes(), kValues + 16 * kActivation);
}

// Loading and drawing weights never hold more of a tensor than a piece.
TEST(Nf4, AsksForPieces) {
  const Nf4Layout layout{.numel = (int64_t{9} << 20) + 64};
  int64_t next = 0, largest = 0;
  quantise_nf4(layout, [&](int64_t begin, const at::Tensor& values) {
    EXPECT_EQ(begin, next);
    next += values.numel();
    largest = std::max(largest, values.numel());
    values.zero_();
  });
  EXPECT_EQ(next, layout.numel);
  EXPECT_EQ(largest, int64_t{4} << 20);
}

}  // namespace
}  // namespace skein::ops
