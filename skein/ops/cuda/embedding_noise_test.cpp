// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The kernel against the CPU reference: the same draws; a fused multiply-add may round once less.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/ops/dropout.h"
#include "skein/ops/embedding_noise.h"

namespace skein::ops {
namespace {

TEST(CudaEmbeddingNoise, EqualsTheCpuReference) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(6);
  const auto keys = [](std::vector<int64_t> values, at::DeviceType device) {
    return at::tensor(values, at::kLong).to(device);
  };
  const auto rows_on = [&](at::DeviceType device) {
    return EmbeddingNoise{.alpha = 5,
                          .stream = 77,
                          .documents = keys({4, 9}, device),
                          .lengths = keys({33, 20}, device)};
  };
  const auto run_on = [&](at::DeviceType device) {
    const auto tokens = at::arange(33, at::TensorOptions(device).dtype(at::kLong));
    return EmbeddingNoise{.alpha = 5,
                          .stream = 77,
                          .documents = tokens.floor_divide(8),
                          .lengths = tokens.floor_divide(8).eq(4).mul(-7).add(8),
                          .positions = tokens.remainder(8)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const double tolerance = dtype == at::kBFloat16 ? 8e-3 : dtype == at::kFloat ? 1e-6 : 1e-14;
    const auto x = at::randn({2, 33, 70}, at::kDouble).to(dtype), row = x.narrow(0, 0, 1);
    const auto on_gpu = x.to(at::kCUDA).set_requires_grad(true);
    const auto y = embedding_noise(on_gpu, rows_on(at::kCUDA));
    EXPECT_TRUE(at::allclose(y.cpu(), embedding_noise(x, rows_on(at::kCPU)), tolerance, tolerance))
        << dtype;
    EXPECT_FALSE(at::equal(y.cpu(), x));
    const auto gradient = torch::autograd::grad({y.sum()}, {on_gpu})[0];
    EXPECT_TRUE(at::equal(gradient, at::ones_like(gradient)));
    EXPECT_TRUE(at::allclose(embedding_noise(row.to(at::kCUDA), run_on(at::kCUDA)).cpu(),
                             embedding_noise(row, run_on(at::kCPU)), tolerance, tolerance));
  }
}

}  // namespace
}  // namespace skein::ops
