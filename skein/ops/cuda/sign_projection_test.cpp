// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "skein/core/random.h"
#include "skein/ops/device.h"
#include "skein/ops/sign_projection_kernel.h"

namespace skein::ops {
namespace {

constexpr uint64_t kStream = 0x1234567890abcdefU;

at::Tensor signs_of(int64_t first_element, int64_t elements, int64_t columns) {
  const auto signs = at::empty({elements, columns}, at::kFloat);
  auto* out = signs.mutable_data_ptr<float>();
  for (int64_t e = 0; e < elements; ++e) {
    for (int64_t c = 0; c < columns; ++c) {
      *out++ = random::projection_sign(kStream, static_cast<uint64_t>(first_element + e),
                                       static_cast<uint64_t>(c));
    }
  }
  return signs;
}

void project(const at::Tensor& sums, const at::Tensor& rows, int64_t first_element) {
  const auto scratch = sign_projection_scratch(rows.size(0), rows.size(1), sums.size(1));
  const auto terms = at::empty({scratch.terms}, rows.options().dtype(at::kBFloat16));
  const auto parts = at::empty({scratch.parts}, rows.options());
  add_sign_projection_on_cuda({rows.const_data_ptr<float>(), rows.stride(0), rows.size(0),
                               rows.size(1), sums.size(1), kStream, first_element,
                               sums.mutable_data_ptr<float>(), terms.mutable_data_ptr(),
                               parts.mutable_data_ptr<float>()});
}

struct Sizes {
  int64_t samples, elements, columns, first_element;
};

// Odd sizes in every direction, more than one tile, split and sum of each.
TEST(CudaSignProjection, IsTheProductWithTheSigns) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto& [samples, elements, columns, first] :
       {Sizes{1, 1, 1, 0}, Sizes{3, 130, 127, 5}, Sizes{32, 4096, 256, 0},
        Sizes{33, 5000, 300, (int64_t{1} << 32) - 17}, Sizes{70, 20001, 1024, 77}}) {
    const auto rows = at::randn({samples, elements});
    const auto sums = at::randn({samples, columns}, at::TensorOptions(at::kCUDA));
    const auto expected =
        sums.cpu().to(at::kDouble) +
        at::matmul(rows.to(at::kDouble), signs_of(first, elements, columns).to(at::kDouble));
    project(sums, rows.to(at::kCUDA), first);
    const auto error = (sums.cpu().to(at::kDouble) - expected).norm().item<double>() /
                       expected.norm().item<double>();
    fmt::print("{} x {} x {}: relative difference {:.2e}\n", samples, elements, columns, error);
    EXPECT_LT(error, 5e-6);
  }
}

// A sum of one sign does not shrink as it grows: tensor cores cut instead of rounding.
TEST(CudaSignProjection, LongSumsKeepTheirLength) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kElements = 200000;
  const auto signs = signs_of(0, kElements, 1);
  const auto rows = (signs.t() * 1.2345F).to(at::kCUDA).contiguous();  // every product is positive
  const auto sums = at::zeros({1, 1}, at::TensorOptions(at::kCUDA));
  project(sums, rows, 0);
  EXPECT_NEAR(sums.item<double>() / (kElements * static_cast<double>(1.2345F)), 1, 5e-6);
}

TEST(CudaSignProjection, FilledSignsAreThoseOfTheRule) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const int64_t columns : {1, 128, 300}) {
    const auto signs = at::empty({77, columns}, at::TensorOptions(at::kCUDA));
    fill_signs_on_cuda({signs.mutable_data_ptr<float>(), kStream, 9, 77, columns});
    EXPECT_TRUE(signs.cpu().equal(signs_of(9, 77, columns)));
  }
}

// Printed, not judged: both bf16 terms are counted.
TEST(CudaSignProjection, Speed) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const int64_t samples : {16, 32, 64, 128}) {
    constexpr int64_t kElements = 262144, kColumns = 8192;
    const auto rows = at::randn({samples, kElements}, at::TensorOptions(at::kCUDA));
    const auto sums = at::zeros({samples, kColumns}, at::TensorOptions(at::kCUDA));
    project(sums, rows, 0);
    synchronise(true);
    const auto start = std::chrono::steady_clock::now();
    constexpr int kTurns = 20;
    for (int i = 0; i < kTurns; ++i) project(sums, rows, i * kElements);
    synchronise(true);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double flops = 2.0 * 2 * static_cast<double>(samples) * kElements * kColumns * kTurns;
    fmt::print("{} samples: {:.2f} ms, {:.0f} TFLOP/s\n", samples, seconds.count() / kTurns * 1e3,
               flops / seconds.count() / 1e12);
  }
}

}  // namespace
}  // namespace skein::ops
