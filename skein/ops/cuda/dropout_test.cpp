// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The kernel against the CPU reference: same masks and, per type, the same bits.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/ops/dropout.h"

namespace skein::ops {
namespace {

Dropout keyed_on(at::DeviceType device) {
  return {0.3, dropout_stream({.seed = 7, .step = 3}, 1, DropoutSite::kMlpOutput),
          at::tensor({4, 9}, at::kLong).to(device)};
}

TEST(CudaDropout, EqualsTheCpuReferenceBitForBit) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(6);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto x = at::randn({2, 33, 70}, at::kDouble).to(dtype);
    const auto on_gpu = x.to(at::kCUDA).set_requires_grad(true);
    const auto y = dropout(on_gpu, keyed_on(at::kCUDA));
    EXPECT_TRUE(at::equal(y.cpu(), dropout(x, keyed_on(at::kCPU)))) << dtype;
    const auto gradient = torch::autograd::grad({(y * on_gpu.detach()).sum()}, {on_gpu})[0];
    EXPECT_TRUE(at::equal(gradient, y)) << dtype;

    const auto row = x.narrow(0, 0, 1);
    const auto run_on = [](at::DeviceType device) {
      auto keyed = keyed_on(device);
      keyed.documents = at::arange(33, keyed.documents.options()).floor_divide(8);
      keyed.positions = at::arange(33, keyed.documents.options()).remainder(8);
      return keyed;
    };
    EXPECT_TRUE(at::equal(dropout(row.to(at::kCUDA), run_on(at::kCUDA)).cpu(),
                          dropout(row, run_on(at::kCPU))));

    const auto probabilities = at::randn({2, 3, 17, 17}, at::kDouble).to(dtype);
    const auto dropped = attention_dropout(probabilities.to(at::kCUDA), keyed_on(at::kCUDA));
    EXPECT_TRUE(at::equal(dropped.cpu(), attention_dropout(probabilities, keyed_on(at::kCPU))));
  }
}

}  // namespace
}  // namespace skein::ops
