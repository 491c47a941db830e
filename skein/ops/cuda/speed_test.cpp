// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Prints what the memory-bound kernels reach, at the shapes of GPT-2 124M with 64 x 1024 tokens.
// The bytes are those that must move; results are tested elsewhere.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "skein/ops/column_sum.h"
#include "skein/ops/device.h"
#include "skein/ops/layer_norm.h"
#include "skein/ops/nf4.h"
#include "skein/ops/rms_norm.h"
#include "skein/ops/square_sum.h"

namespace skein::ops {
namespace {

// The best of ten, each of ten calls.
void print_speed(const char* name, int64_t bytes, const std::function<void()>& work) {
  work();
  double best = 1e9;
  for (int turn = 0; turn < 10; ++turn) {
    synchronise(true);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) work();
    synchronise(true);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::min(best, seconds.count() / 10);
  }
  fmt::print("{:34} {:8.1f} us {:6.2f} TB/s\n", name, best * 1e6,
             static_cast<double>(bytes) / best / 1e12);
}

at::Tensor random(at::IntArrayRef shape, bool leaf = false) {
  return at::randn(shape, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)).requires_grad_(leaf);
}

TEST(CudaSpeed, Norms) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const int64_t channels : {768, 1600, 4096}) {
    const auto x = random({65536, channels}, true), delta = random({65536, channels}, true);
    const LayerNorm norm{random({channels}, true), random({channels}, true), 1e-5};
    const int64_t one = x.numel() * 2;
    const auto seed = random({65536, channels}), also = random({65536, channels});
    fmt::print("65536 x {}\n", channels);
    print_speed("layer_norm", 2 * one, [&] { layer_norm(x, norm); });
    print_speed("add_layer_norm", 4 * one, [&] { add_layer_norm(x, delta, norm); });
    const auto [sum, y] = add_layer_norm(x, delta, norm);
    print_speed("add_layer_norm backward", 4 * one, [&, &sum = sum, &y = y] {
      torch::autograd::grad({sum, y}, {x, delta, norm.weight, norm.bias}, {also, seed},
                            /*retain_graph=*/true);
    });
    const auto [stream, z] = add_rms_norm(x, delta, norm.weight, 1e-5);
    print_speed("add_rms_norm", 4 * one, [&] { add_rms_norm(x, delta, norm.weight, 1e-5); });
    print_speed("add_rms_norm backward", 4 * one, [&, &stream = stream, &z = z] {
      torch::autograd::grad({stream, z}, {x, delta, norm.weight}, {also, seed},
                            /*retain_graph=*/true);
    });
  }
}

TEST(CudaSpeed, Sums) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const int64_t columns : {768, 2304, 3072}) {
    const auto x = random({65536, columns});
    print_speed(fmt::format("column_sum of 65536 x {}", columns).c_str(), x.numel() * 2,
                [&] { column_sum(x); });
    print_speed("  at::sum", x.numel() * 2, [&] { x.sum(0); });
  }
  const auto sum = at::zeros({}, at::TensorOptions(at::kCUDA).dtype(at::kDouble));
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    const auto x = at::ones({1 << 29}, at::TensorOptions(at::kCUDA).dtype(dtype));
    print_speed(fmt::format("add_square_sum of 2^29 {}", c10::toString(dtype)).c_str(),
                static_cast<int64_t>(x.nbytes()), [&] { add_square_sum(x, sum); });
  }
}

TEST(CudaSpeed, Dequantisation) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const bool doubly : {false, true}) {
    const Nf4Matrix matrix{.rows = 14336, .columns = 4096, .doubly = doubly};
    const auto bytes =
        at::zeros({matrix.layout().bytes()}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
    print_speed(doubly ? "dequantise_nf4, double" : "dequantise_nf4",
                bytes.numel() + 2 * matrix.rows * matrix.columns,
                [&] { dequantise_nf4(bytes, matrix, at::kBFloat16); });
  }
}

}  // namespace
}  // namespace skein::ops
