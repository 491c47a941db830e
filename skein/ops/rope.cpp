// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "skein/ops/fused.h"
#include "skein/ops/rope_kernel.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Heads of a token lie together, and tokens at equal distances of whole vectors.
bool has_even_tokens(const at::Tensor& x) {
  const bool whole = x.stride(3) == 1 && x.stride(2) == x.size(3);
  const bool even = x.size(1) == 1 || x.size(0) == 1 || x.stride(0) == x.size(1) * x.stride(1);
  const auto distance = x.size(1) == 1 ? x.stride(0) : x.stride(1);
  return whole && even && distance * x.element_size() % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

at::Tensor turn(const at::Tensor& x, const RopeTable& table, bool backwards) {
  const auto input = has_even_tokens(x) ? x : x.contiguous();
  const auto output = at::empty(x.sizes(), x.options());
  rope_on_cuda({.x = input.const_data_ptr(),
                .x_stride = input.size(1) == 1 ? input.stride(0) : input.stride(1),
                .y = output.mutable_data_ptr(),
                .cos = table.cos.const_data_ptr(),
                .sin = table.sin.const_data_ptr(),
                .rows = x.size(0) * x.size(1),
                .tokens = table.cos.numel() / table.cos.size(-1),  // all rows, where they differ
                .heads = static_cast<int>(x.size(2)),
                .head_dim = static_cast<int>(x.size(3)),
                .backwards = backwards,
                .type = element_type(x)});
  return output;
}

// A rotation's gradient is the rotation back.
struct FusedRope : Function<FusedRope> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return turn(x, {cos, sin}, /*backwards=*/false);
  }
  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    return {turn(incoming[0], {saved[0], saved[1]}, /*backwards=*/true), {}, {}};
  }
};

}  // namespace

RopeTable rope_table(int64_t num_tokens, int64_t head_dim, double theta,
                     const at::TensorOptions& options) {
  return rope_table(at::arange(num_tokens, options.dtype(at::kFloat).requires_grad(false)),
                    head_dim, theta, options);
}

RopeTable rope_table(const at::Tensor& positions, int64_t head_dim, double theta,
                     const at::TensorOptions& options) {
  return rope_table(positions, rope_frequencies(head_dim, theta, options), 1, options);
}

RopeTable rope_table(const at::Tensor& positions, const at::Tensor& frequencies, double magnitude,
                     const at::TensorOptions& options) {
  const auto angle = positions.to(at::kFloat).unsqueeze(-1) * frequencies;  // (…, D/2)
  auto cos = angle.cos(), sin = angle.sin();
  if (magnitude != 1) {
    cos *= magnitude;
    sin *= magnitude;
  }
  return {cos.to(options.dtype()), sin.to(options.dtype())};
}

at::Tensor rope_frequencies(int64_t head_dim, double theta, const at::TensorOptions& options) {
  const auto wide = options.dtype(at::kFloat).requires_grad(false);
  const auto exponent = at::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  return at::pow(theta, exponent).reciprocal();
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  const auto turning = 2 * table.cos.size(-1), staying = x.size(-1) - turning;
  if (staying > 0) {
    return at::cat({rotate(x.narrow(-1, 0, turning), table), x.narrow(-1, turning, staying)}, -1);
  }
  if (fits_kernels(x) && x.size(-1) % 16 == 0) return FusedRope::apply(x, table.cos, table.sin);
  const auto half = x.size(-1) / 2;
  const auto first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  const auto cos = table.cos.unsqueeze(-2), sin = table.sin.unsqueeze(-2);  // (…, T, 1, D/2)
  return at::cat({first * cos - second * sin, second * cos + first * sin}, -1);
}

std::pair<at::Tensor, at::Tensor> rotate(const at::Tensor& q, const at::Tensor& k,
                                         const RopeTable& table) {
  if (!q.is_cuda() || c10::GradMode::is_enabled()) return {rotate(q, table), rotate(k, table)};
  const auto heads = q.size(2), key_heads = k.size(2), channels = q.size(3);
  const auto* behind = static_cast<const char*>(q.const_data_ptr()) +
                       heads * channels * static_cast<int64_t>(q.element_size());
  const auto as_far = [&](int dim) { return q.size(dim) == 1 || k.stride(dim) == q.stride(dim); };
  const bool beside = has_even_tokens(q) && q.is_alias_of(k) && k.const_data_ptr() == behind &&
                      as_far(0) && as_far(1);
  if (!beside) return {rotate(q, table), rotate(k, table)};
  auto sizes = q.sizes().vec();
  sizes[2] += key_heads;
  const auto both = rotate(q.as_strided(sizes, q.strides()), table);
  return {both.narrow(2, 0, heads), both.narrow(2, heads, key_heads)};
}

}  // namespace skein::ops
