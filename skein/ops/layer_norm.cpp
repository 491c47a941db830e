// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/layer_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "skein/ops/column_sum_kernel.h"
#include "skein/ops/fused.h"
#include "skein/ops/layer_norm_kernel.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor plain(const at::Tensor& x, const LayerNorm& norm) {
  if (x.is_meta()) return at::empty_like(x);  // no meta kernel in C++
  return at::layer_norm(x, norm.weight.sizes(), norm.weight, norm.bias, norm.epsilon);
}

bool fits(const at::Tensor& x, const LayerNorm& norm) {
  return fits_kernels(x) && x.numel() > 0 && x.size(-1) <= kLayerNormMostChannels &&
         norm.weight.scalar_type() == x.scalar_type() && norm.bias.scalar_type() == x.scalar_type();
}

const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Runs the forward kernel and saves what backward needs. Contiguous x and delta, which may be
// undefined; the sum is then x.
AddedNorm fused_forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& delta,
                        const LayerNorm& norm) {
  const auto sum = delta.defined() ? at::empty_like(x) : at::Tensor();
  const auto y = at::empty_like(x);
  const int64_t rows = x.numel() / x.size(-1);
  const auto mean = at::empty({rows}, x.options().dtype(at::kFloat));
  const auto inverse = at::empty_like(mean);
  layer_norm_on_cuda({.x = x.const_data_ptr(),
                      .delta = data_or_null(delta),
                      .weight = norm.weight.const_data_ptr(),
                      .bias = norm.bias.const_data_ptr(),
                      .sum = sum.defined() ? sum.mutable_data_ptr() : nullptr,
                      .y = y.mutable_data_ptr(),
                      .mean = mean.mutable_data_ptr<float>(),
                      .inverse = inverse.mutable_data_ptr<float>(),
                      .rows = rows,
                      .channels = static_cast<int>(x.size(-1)),
                      .epsilon = static_cast<float>(norm.epsilon),
                      .type = element_type(x)});
  context->save_for_backward({sum.defined() ? sum : x, norm.weight, mean, inverse});
  context->set_materialize_grads(false);
  return {sum.defined() ? sum : x, y};
}

struct Gradients {
  at::Tensor x, weight, bias;
};

// d_sum, the gradient of the stream from elsewhere, may be undefined.
Gradients fused_backward(AutogradContext* context, const at::Tensor& d_y, const at::Tensor& d_sum) {
  const auto saved = context->get_saved_variables();
  const auto &x = saved[0], &weight = saved[1];
  const auto incoming = d_y.contiguous();
  const auto also = d_sum.defined() ? d_sum.contiguous() : at::Tensor();
  const auto d_x = at::empty_like(x);
  const int64_t channels = x.size(-1);
  const int num_parts = layer_norm_parts(static_cast<int>(channels));
  const auto parts = at::empty({num_parts, 2 * channels}, x.options().dtype(at::kFloat));
  layer_norm_backward_on_cuda({.x = x.const_data_ptr(),
                               .weight = weight.const_data_ptr(),
                               .mean = saved[2].const_data_ptr<float>(),
                               .inverse = saved[3].const_data_ptr<float>(),
                               .d_y = incoming.const_data_ptr(),
                               .d_sum = data_or_null(also),
                               .d_x = d_x.mutable_data_ptr(),
                               .parts = parts.mutable_data_ptr<float>(),
                               .rows = x.numel() / channels,
                               .channels = static_cast<int>(channels),
                               .type = element_type(x)});
  const auto of_parameters = at::empty({2 * channels}, weight.options());
  part_sum_on_cuda({.parts = parts.const_data_ptr<float>(),
                    .sum = of_parameters.mutable_data_ptr(),
                    .num_parts = num_parts,
                    .columns = 2 * channels,
                    .type = element_type(weight)});
  return {d_x, of_parameters.narrow(0, 0, channels), of_parameters.narrow(0, channels, channels)};
}

// The norm, with the stream that it belongs to passed through. `parameters` are weight and bias.
struct FusedNorm : Function<FusedNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList parameters, double epsilon) {
    const LayerNorm norm{parameters[0], parameters[1], epsilon};
    return {x, fused_forward(context, x.contiguous(), {}, norm).normalised};
  }
  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    if (!incoming[1].defined()) return {incoming[0], {}, {}, {}};
    const auto d = fused_backward(context, incoming[1], incoming[0]);
    return {d.x, d.weight, d.bias, {}};
  }
};

struct FusedAddNorm : Function<FusedAddNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& delta, at::TensorList parameters, double epsilon) {
    const LayerNorm norm{parameters[0], parameters[1], epsilon};
    const auto [sum, normalised] = fused_forward(context, x.contiguous(), delta.contiguous(), norm);
    return {sum, normalised};
  }
  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    if (!incoming[1].defined()) return {incoming[0], incoming[0], {}, {}, {}};
    const auto d = fused_backward(context, incoming[1], incoming[0]);
    return {d.x, d.x, d.weight, d.bias, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const LayerNorm& norm) {
  return add_layer_norm(x, {}, norm).normalised;
}

AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const LayerNorm& norm) {
  if (!fits(x, norm)) {
    const auto sum = delta.defined() ? x + delta : x;
    return {sum, plain(sum, norm)};
  }
  const variable_list list{norm.weight, norm.bias};
  const at::TensorList parameters(list);
  const auto outputs = delta.defined() ? FusedAddNorm::apply(x, delta, parameters, norm.epsilon)
                                       : FusedNorm::apply(x, parameters, norm.epsilon);
  return {outputs[0], outputs[1]};
}

}  // namespace skein::ops
