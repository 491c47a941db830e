// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// AdamW with states in fewer bytes: the kernels give the CPU's bits.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cpu/adamw.h"
#include "skein/ops/moment_code.h"
#include "skein/tensor/dtype.h"

namespace skein::ops {
namespace {

constexpr int64_t kCount = 4000 * kMomentBlock;
constexpr double kFactor = 0.75;

// Both calls have these under the same names.
template <typename Call>
void set_rates(Call& call) {
  call.learning_rate = 1e-2;
  call.beta1 = 0.9;
  call.beta2 = 0.95;
  call.epsilon = 1e-8;
  call.weight_decay = 0.1;
}

struct Arrays {
  at::Tensor weights, master, exp_avg, exp_avg_sq, exp_avg_scale, exp_avg_sq_scale;

  Arrays to(at::Device device) const {
    const auto move = [&](const at::Tensor& x) {
      return x.defined() ? x.to(device).clone() : at::Tensor();
    };
    return {move(weights),    move(master),        move(exp_avg),
            move(exp_avg_sq), move(exp_avg_scale), move(exp_avg_sq_scale)};
  }
  std::vector<at::Tensor> all() const {
    return {weights, master, exp_avg, exp_avg_sq, exp_avg_scale, exp_avg_sq_scale};
  }
  template <typename Call>
  void point(Call& call, const at::Tensor& gradient) const {
    call.type = tensor::dtype_of(weights.scalar_type());
    call.gradient_type = tensor::dtype_of(gradient.scalar_type());
    call.weights = call.type == DType::kF32 ? nullptr : weights.mutable_data_ptr();
    const auto address = [](const at::Tensor& x) {
      return x.defined() ? x.mutable_data_ptr<float>() : nullptr;
    };
    call.master = address(master);
    call.exp_avg = exp_avg.mutable_data_ptr();
    call.exp_avg_sq = exp_avg_sq.mutable_data_ptr();
    call.exp_avg_scale = address(exp_avg_scale);
    call.exp_avg_sq_scale = address(exp_avg_sq_scale);
    call.rounding_key = 77;
    call.first_element = 1280;
    call.gradient = gradient.const_data_ptr();
    call.count = kCount;
    set_rates(call);
  }
};

Arrays fresh_arrays(at::ScalarType dtype) {
  const auto master = at::randn({kCount});
  const auto scales = at::zeros({kCount / kMomentBlock});
  const auto bytes = at::zeros({kCount}, at::kByte);
  const auto weights = master.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  return {weights, master, bytes.clone(), bytes.clone(), scales.clone(), scales.clone()};
}

void update_on_cuda(const Arrays& arrays, const at::Tensor& gradient, int64_t step, double skip) {
  const auto scalar = [](double value, at::ScalarType dtype) {
    return at::full({}, value, at::TensorOptions().dtype(dtype).device(at::kCUDA));
  };
  const auto factor = scalar(kFactor, at::kDouble),
             number = scalar(static_cast<double>(step), at::kFloat),
             flag = scalar(skip, at::kFloat);
  AdamWCall call;
  arrays.point(call, gradient);
  call.factor = factor.const_data_ptr<double>();
  call.step = number.const_data_ptr<float>();
  call.skip = flag.const_data_ptr<float>();
  const auto update = arrays.exp_avg_scale.defined() ? adamw_8bit_on_cuda
                      : arrays.master.defined()      ? adamw_on_cuda
                                                     : adamw_bfloat16_on_cuda;
  update(call);
}

void expect_equal(const Arrays& expected, const Arrays& found) {
  const auto a = expected.all(), b = found.all();
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined()) continue;
    EXPECT_TRUE(a[i].equal(b[i].cpu())) << i;
  }
}

void compare_steps(const Arrays& host, at::ScalarType gradient_dtype) {
  const auto device = host.to(at::kCUDA);
  for (int64_t step = 1; step <= 5; ++step) {
    // Magnitudes differ inside a block, and one block has zeros alone. None is too large for
    // float16.
    auto gradient = (at::randn({kCount}) * at::pow(10, at::randn({kCount}))).clamp(-1e4, 1e4);
    gradient.slice(0, kMomentBlock, 2 * kMomentBlock).zero_();
    gradient = gradient.to(gradient_dtype);
    HostAdamW call;
    host.point(call, gradient);
    call.factor = kFactor;
    call.step = step;
    adamw_on_cpu({&call, 1}, {});
    update_on_cuda(device, gradient.to(at::kCUDA), step, /*skip=*/0);
    expect_equal(host, device);
  }
}

TEST(CudaAdamW8bit, GivesTheBitsOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(3);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto gradient_dtype : {dtype, at::kFloat}) {
      compare_steps(fresh_arrays(dtype), gradient_dtype);
    }
  }
}

// A run with its states in host memory makes the same updates.
TEST(CudaAdamW, GivesTheBitsOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(5);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto gradient_dtype : {dtype, at::kFloat}) {
      auto arrays = fresh_arrays(dtype);
      arrays.exp_avg_scale.reset();
      arrays.exp_avg_sq_scale.reset();
      arrays.exp_avg = at::zeros({kCount});
      arrays.exp_avg_sq = at::zeros({kCount});
      compare_steps(arrays, gradient_dtype);
    }
  }
}

// Weights of bf16 without a master, with bf16 moments and with bytes.
TEST(CudaAdamWPure, GivesTheBitsOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::manual_seed(4);
  for (const auto gradient_dtype : {at::kBFloat16, at::kFloat}) {
    auto arrays = fresh_arrays(at::kBFloat16);
    arrays.master.reset();
    compare_steps(arrays, gradient_dtype);
    arrays = fresh_arrays(at::kBFloat16);
    arrays.master.reset();
    arrays.exp_avg_scale.reset();
    arrays.exp_avg_sq_scale.reset();
    arrays.exp_avg = at::zeros({kCount}, at::kBFloat16);
    arrays.exp_avg_sq = at::zeros({kCount}, at::kBFloat16);
    compare_steps(arrays, gradient_dtype);
  }
}

TEST(CudaAdamW8bit, SkipLeavesEverythingAsItIs) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const auto before = fresh_arrays(at::kBFloat16), device = before.to(at::kCUDA);
  update_on_cuda(device, at::randn({kCount}).to(at::kCUDA), 1, /*skip=*/1);
  expect_equal(before, device);
}

}  // namespace
}  // namespace skein::ops
