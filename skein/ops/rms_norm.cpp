// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "skein/ops/fused.h"
#include "skein/ops/rms_norm_kernel.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// In fp32, fp64 for float64.
at::Tensor widened(const at::Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

at::Tensor without_weight(const at::Tensor& x, double epsilon) {
  const auto wide = widened(x);
  const auto variance = wide.pow(2).mean(-1, /*keepdim=*/true);
  return wide * (variance + epsilon).rsqrt();
}

at::Tensor plain(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return weight * without_weight(x, epsilon).to(x.scalar_type());
}

bool fits(const at::Tensor& x, const at::Tensor& weight) {
  return fits_kernels(x) && weight.scalar_type() == x.scalar_type();
}

const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Runs the forward kernel; what backward needs is saved. Returns {normalised} or {sum, normalised}.
variable_list fused_forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& delta,
                            const at::Tensor& weight, double epsilon) {
  const auto sum = delta.defined() ? at::empty_like(x) : at::Tensor();
  const auto y = at::empty_like(x);
  const int64_t rows = x.numel() / x.size(-1);
  const auto inverse_rms = at::empty({rows}, x.options().dtype(at::kFloat));
  rms_norm_on_cuda({.x = x.const_data_ptr(),
                    .delta = data_or_null(delta),
                    .weight = weight.const_data_ptr(),
                    .sum = sum.defined() ? sum.mutable_data_ptr() : nullptr,
                    .y = y.mutable_data_ptr(),
                    .inverse_rms = inverse_rms.mutable_data_ptr<float>(),
                    .rows = rows,
                    .channels = static_cast<int>(x.size(-1)),
                    .epsilon = static_cast<float>(epsilon),
                    .type = element_type(x)});
  context->save_for_backward({sum.defined() ? sum : x, weight, inverse_rms});
  context->set_materialize_grads(false);
  if (sum.defined()) return {sum, y};
  return {y};
}

// {d_x, d_weight}; d_sum may be undefined.
std::pair<at::Tensor, at::Tensor> fused_backward(AutogradContext* context, const at::Tensor& d_y,
                                                 const at::Tensor& d_sum) {
  const auto saved = context->get_saved_variables();
  const auto &x = saved[0], &weight = saved[1], &inverse_rms = saved[2];
  const auto incoming = d_y.contiguous();
  const auto also = d_sum.defined() ? d_sum.contiguous() : at::Tensor();
  const auto d_x = at::empty_like(x);
  const int64_t channels = x.size(-1);
  const auto parts = at::empty({kRmsNormParts, channels}, x.options().dtype(at::kFloat));
  rms_norm_backward_on_cuda({.x = x.const_data_ptr(),
                             .weight = weight.const_data_ptr(),
                             .inverse_rms = inverse_rms.const_data_ptr<float>(),
                             .d_y = incoming.const_data_ptr(),
                             .d_sum = data_or_null(also),
                             .d_x = d_x.mutable_data_ptr(),
                             .d_weight_parts = parts.mutable_data_ptr<float>(),
                             .rows = x.numel() / channels,
                             .channels = static_cast<int>(channels),
                             .type = element_type(x)});
  return {d_x, parts.sum(0).to(weight.scalar_type())};
}

// The norm, with the stream that it belongs to passed through.
struct FusedNorm : Function<FusedNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& weight, double epsilon) {
    return {x, fused_forward(context, x.contiguous(), {}, weight, epsilon)[0]};
  }
  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    if (!incoming[1].defined()) return {incoming[0], {}, {}};
    const auto [d_x, d_weight] = fused_backward(context, incoming[1], incoming[0]);
    return {d_x, d_weight, {}};
  }
};

struct FusedAddNorm : Function<FusedAddNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& delta, const at::Tensor& weight, double epsilon) {
    return fused_forward(context, x.contiguous(), delta.contiguous(), weight, epsilon);
  }
  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    if (!incoming[1].defined()) return {incoming[0], incoming[0], {}, {}};
    const auto [d_x, d_weight] = fused_backward(context, incoming[1], incoming[0]);
    return {d_x, d_x, d_weight, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return add_rms_norm(x, {}, weight, epsilon).normalised;
}

at::Tensor rms_norm_plus_one(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return (without_weight(x, epsilon) * (widened(weight) + 1)).to(x.scalar_type());
}

AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                       double epsilon) {
  if (!fits(x, weight)) {
    const auto sum = delta.defined() ? x + delta : x;
    return {sum, plain(sum, weight, epsilon)};
  }
  const auto outputs = delta.defined() ? FusedAddNorm::apply(x, delta, weight, epsilon)
                                       : FusedNorm::apply(x, weight, epsilon);
  return {outputs[0], outputs[1]};
}

}  // namespace skein::ops
