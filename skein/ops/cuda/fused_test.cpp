// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The fused kernels against the plain formulas on the CPU, in fp32, bf16 and fp16.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>

#include "skein/ops/column_sum.h"
#include "skein/ops/layer_norm.h"
#include "skein/ops/linear.h"
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

enum class Reference { kSameType, kDouble };  // of the CPU; with one rounding double will do

Inputs converted(const Inputs& inputs, at::ScalarType dtype) {
  Inputs result;
  for (const auto& input : inputs) {
    result.push_back(input.is_floating_point() ? input.to(dtype) : input);
  }
  return result;
}

void compare(const std::string& name, const Run& run, const Inputs& shapes,
             Reference reference = Reference::kSameType) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}, {at::kHalf, 2e-3}}) {
    const auto inputs = converted(shapes, dtype);
    const auto expected = evaluate(
        run, reference == Reference::kDouble ? converted(inputs, at::kDouble) : inputs, at::kCPU);
    const auto found = evaluate(run, inputs, at::kCUDA);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(relative(expected[i], found[i]), tolerance) << name << " " << dtype << " " << i;
    }
  }
}

TEST(CudaKernels, RmsNorm) {
  compare("rms_norm", [](const Inputs& in) { return rms_norm(in[0], in[1], 1e-6); },
          {at::randn({3, 301, 520}), at::randn({520})});
}

// From 12,288 channels on a row's sums do not fit into 48 KiB of shared memory.
TEST(CudaKernels, RmsNormOfWideRows) {
  for (const int64_t channels : {11264, 11272, 12288, 16392}) {
    compare("rms_norm", [](const Inputs& in) { return rms_norm(in[0], in[1], 1e-6); },
            {at::randn({3, 101, channels}), at::randn({channels})});
  }
}

TEST(CudaKernels, AddRmsNorm) {
  const auto run = [](const Inputs& in) {
    const auto [sum, normalised] = add_rms_norm(in[0], in[1], in[2], 1e-6);
    return sum * 0.5 + normalised;
  };
  compare("add_rms_norm", run,
          {at::randn({2, 77, 2048}), at::randn({2, 77, 2048}), at::randn({2048})});
}

TEST(CudaKernels, RmsNormOfAStreamThatGoesOn) {
  const auto run = [](const Inputs& in) {
    const auto [sum, normalised] = add_rms_norm(in[0], {}, in[1], 1e-6);
    return sum * 0.5 + normalised;
  };
  compare("rms_norm", run, {at::randn({2, 77, 2048}), at::randn({2048})});
}

// One warp for a row, several, as many as there can be, and rows too long for the kernels. Rows
// are no multiple of what a block takes.
TEST(CudaKernels, LayerNorm) {
  const auto run = [](const Inputs& in) { return layer_norm(in[0], {in[1], in[2], 1e-5}); };
  for (const int64_t channels : {8, 520, 768, 1024, 1032, 1600, 3072, 12288, 16384, 16392}) {
    compare(fmt::format("layer_norm of {}", channels), run,
            {at::randn({3, 301, channels}) + 0.5, at::randn({channels}), at::randn({channels})},
            Reference::kDouble);
  }
  compare("layer_norm of one row", run, {at::randn({1, 768}), at::randn({768}), at::randn({768})},
          Reference::kDouble);
}

TEST(CudaKernels, LayerNormOfStridedRows) {
  const auto run = [](const Inputs& in) {
    return layer_norm(in[0].transpose(0, 1), {in[1], in[2], 1e-5}).transpose(0, 1);
  };
  compare("layer_norm", run, {at::randn({37, 5, 768}), at::randn({768}), at::randn({768})},
          Reference::kDouble);
}

TEST(CudaKernels, AddLayerNorm) {
  const auto run = [](const Inputs& in) {
    const auto [stream, first] = add_layer_norm(in[0], {}, {in[2], in[3], 1e-5});
    const auto [sum, second] = add_layer_norm(stream, in[1] * first, {in[3], in[2], 1e-5});
    return sum * 0.5 + second;
  };
  for (const int64_t channels : {768, 3072}) {
    compare(fmt::format("add_layer_norm of {}", channels), run,
            {at::randn({2, 77, channels}), at::randn({2, 77, channels}), at::randn({channels}),
             at::randn({channels})},
            Reference::kDouble);
  }
}

TEST(CudaKernels, ColumnSum) {
  const auto run = [](const Inputs& in) { return column_sum(in[0].detach()) + in[0][0]; };
  const std::pair<int64_t, int64_t> kShapes[] = {{1, 8},        {63, 768},    {1001, 1600},
                                                 {65537, 3072}, {300, 12296}, {40, 302'000}};
  for (const auto& [rows, columns] : kShapes) {
    compare(fmt::format("column_sum of {} x {}", rows, columns), run,
            {at::randn({rows, columns}) + 0.1}, Reference::kDouble);
  }
}

// With and without biases, in both layouts, and an input that is a view.
TEST(CudaKernels, Linears) {
  const auto run = [](const Inputs& in) {
    const auto y =
        linears(in[0].transpose(0, 1), {{in[1], in[2]}, {in[3].t(), in[4]}, {in[5], {}}});
    return at::cat(y, -1);
  };
  compare("linears", run,
          {at::randn({31, 9, 264}), at::randn({40, 264}), at::randn({40}), at::randn({264, 48}),
           at::randn({48}), at::randn({12, 264})},
          Reference::kDouble);
}

TEST(CudaKernels, SumsOverRowsGiveTheSameBitsEveryTime) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const auto run = [](const Inputs& in) {
    return layer_norm(linears(in[0], {{in[1], in[2]}})[0], {in[3], in[4], 1e-5});
  };
  const Inputs inputs{at::randn({5000, 256}), at::randn({768, 256}), at::randn({768}),
                      at::randn({768}), at::randn({768})};
  const auto first = evaluate(run, inputs, at::kCUDA);
  for (int turn = 0; turn < 5; ++turn) {
    const auto again = evaluate(run, inputs, at::kCUDA);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(again[i])) << i;
  }
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

// Odd rows take the scalar path; padded ones (whatever the padding holds) the vectors'. Small
// chunks make the sums over chunks matter.
TEST(CudaKernels, CrossEntropy) {
  for (const auto& [vocabulary, rows] :
       {std::pair<int64_t, int64_t>{1024, 1024}, {1003, 1003}, {1003, 1024}, {9, 64}}) {
    auto targets = at::randint(0, vocabulary, {130}, at::kLong);
    targets.slice(0, 5, 9).fill_(tensor::kIgnore);
    const Inputs shapes = {at::randn({130, 96}), at::randn({rows, 96}) * 0.1, targets};
    const HeadOptions options{.logits_bytes = 4096 * 4, .vocabulary = vocabulary};
    const auto sum = [=](const Inputs& in) {
      return linear_cross_entropy_sum({in[0], in[1]}, in[2], {}, options);
    };
    const auto each = [=](const Inputs& in) {
      return linear_log_probs({in[0], in[1]}, in[2], options).log_probs;
    };
    auto smooth = options;
    smooth.smoothing = 0.2;
    const auto smoothed = [=](const Inputs& in) {
      return linear_cross_entropy_sum({in[0], in[1]}, in[2], {}, smooth);
    };
    compare("linear_cross_entropy_sum", sum, shapes);
    compare("linear_cross_entropy_sum, smoothed", smoothed, shapes);
    compare("linear_log_probs", each, shapes);
    auto sharp = options;
    sharp.temperature = 0.7;
    const auto sharper = [=](const Inputs& in) {
      return linear_log_probs({in[0], in[1]}, in[2], sharp).log_probs;
    };
    compare("linear_log_probs, at a temperature", sharper, shapes);

    auto adapted = shapes;
    adapted.insert(adapted.end(), {at::randn({130, 8}), at::randn({rows, 8}) * 0.1,
                                   at::randn({rows}).abs() + 0.5});
    const auto with_adapter = [=](const Inputs& in) {
      return linear_cross_entropy_sum({in[0], in[1], in[3], in[4], in[5]}, in[2], {}, options);
    };
    compare("linear_cross_entropy_sum, adapter", with_adapter, adapted);
  }
}

// Row by row of the weight: most have gradients that are made of probabilities of about 1e-7.
TEST(CudaKernels, CrossEntropyOfSmallProbabilities) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  auto weight = at::randn({1024, 16}) * 0.25;
  weight[0] += 4;
  const Inputs wide = {(at::randn({64, 16}) * 0.1 + 0.25).to(at::kHalf).to(at::kFloat),
                       weight.to(at::kHalf).to(at::kFloat), at::randint(0, 1, {64}, at::kLong)};
  const auto weights = at::full({64}, 0x1p12, at::kDouble);  // as a loss scale comes
  const auto run = [&](const Inputs& in) {
    return linear_cross_entropy_sum({in[0], in[1]}, in[2], weights);
  };
  const auto expected = evaluate(run, wide, at::kCPU)[2];
  const auto found = evaluate(run, converted(wide, at::kHalf), at::kCUDA)[2];
  for (int64_t row = 0; row < 1024; ++row) EXPECT_LE(relative(expected[row], found[row]), 0.005);
}

}  // namespace
}  // namespace skein::ops
