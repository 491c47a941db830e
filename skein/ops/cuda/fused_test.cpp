// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The fused kernels against the plain formulas on the CPU, in fp32 and bf16.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "skein/ops/linear_cross_entropy.h"
#include "skein/ops/rms_norm.h"
#include "skein/ops/rope.h"
#include "skein/ops/swiglu.h"
#include "skein/tensor/batch.h"

namespace skein::ops {
namespace {

using Inputs = std::vector<at::Tensor>;
using Run = std::function<at::Tensor(const Inputs&)>;

double relative(const at::Tensor& expected, const at::Tensor& found) {
  const auto a = expected.cpu().to(at::kDouble), b = found.cpu().to(at::kDouble);
  return (at::linalg_vector_norm(a - b) / at::linalg_vector_norm(a)).item<double>();
}

// Output and gradients of sum(output * something fixed), on one device.
Inputs evaluate(const Run& run, const Inputs& inputs, at::Device device) {
  Inputs leaves;
  for (const auto& input : inputs) {
    leaves.push_back(input.to(device).set_requires_grad(input.is_floating_point()));
  }
  Inputs wanted;
  for (const auto& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(leaf);
  }
  const auto output = run(leaves);
  at::manual_seed(17);
  const auto mix = at::randn(output.sizes()).to(output.scalar_type()).to(device);
  auto results = torch::autograd::grad({(output * mix).sum()}, wanted);
  results.insert(results.begin(), output.detach());
  return results;
}

void compare(const char* name, const Run& run, const Inputs& shapes) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}}) {
    Inputs inputs;
    for (const auto& input : shapes) {
      inputs.push_back(input.is_floating_point() ? input.to(dtype) : input);
    }
    const auto expected = evaluate(run, inputs, at::kCPU), found = evaluate(run, inputs, at::kCUDA);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(relative(expected[i], found[i]), tolerance) << name << " " << dtype << " " << i;
    }
  }
}

TEST(CudaKernels, RmsNorm) {
  compare("rms_norm", [](const Inputs& in) { return rms_norm(in[0], in[1], 1e-6); },
          {at::randn({3, 301, 520}), at::randn({520})});
}

TEST(CudaKernels, AddRmsNorm) {
  const auto run = [](const Inputs& in) {
    const auto [sum, normalised] = add_rms_norm(in[0], in[1], in[2], 1e-6);
    return sum * 0.5 + normalised;
  };
  compare("add_rms_norm", run,
          {at::randn({2, 77, 2048}), at::randn({2, 77, 2048}), at::randn({2048})});
}

TEST(CudaKernels, Rope) {
  const auto run = [](const Inputs& in) {
    return rotate(in[0], rope_table(in[0].size(1), in[0].size(3), 1e4, in[0].options()));
  };
  compare("rope", run, {at::randn({2, 65, 3, 64})});
}

TEST(CudaKernels, RopeOfRowsAtDifferentPositions) {
  const auto run = [](const Inputs& in) {
    return rotate(in[0], rope_table(in[1], in[0].size(3), 1e4, in[0].options()));
  };
  compare("rope", run, {at::randn({2, 5, 3, 64}), at::randint(0, 65, {2, 5}, at::kLong)});
}

TEST(CudaKernels, Swiglu) {
  compare("swiglu", [](const Inputs& in) { return swiglu(in[0], in[1]); },
          {at::randn({5, 33, 264}), at::randn({5, 33, 264})});
}

// Odd vocabularies take the scalar path; small chunks make the sums over chunks matter.
TEST(CudaKernels, CrossEntropy) {
  for (const int64_t vocabulary : {int64_t{1024}, int64_t{1003}}) {
    auto targets = at::randint(0, vocabulary, {130}, at::kLong);
    targets.slice(0, 5, 9).fill_(tensor::kIgnore);
    const Inputs shapes = {at::randn({130, 96}), at::randn({vocabulary, 96}) * 0.1, targets};
    const auto sum = [](const Inputs& in) {
      return linear_cross_entropy_sum(in[0], in[1], in[2], {}, {.logits_bytes = 4096 * 4});
    };
    const auto each = [](const Inputs& in) {
      return linear_log_probs(in[0], in[1], in[2], {.logits_bytes = 4096 * 4});
    };
    compare("linear_cross_entropy_sum", sum, shapes);
    compare("linear_log_probs", each, shapes);
  }
}

}  // namespace
}  // namespace skein::ops
