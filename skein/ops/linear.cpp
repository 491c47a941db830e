// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "skein/ops/column_sum.h"
#include "skein/ops/fused.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// In the layout that the weight has.
at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& d_y, const at::Tensor& x) {
  const bool transposed = weight.stride(0) == 1 && weight.stride(1) == weight.size(0);
  return transposed ? at::mm(x.t(), d_y).t() : at::mm(d_y.t(), x);
}

// Σ d_y · weight: each product after the first adds to what is there.
void add_input_gradient(at::Tensor& d_x, const at::Tensor& d_y, const at::Tensor& weight) {
  if (d_x.defined()) {
    d_x.addmm_(d_y, weight);
  } else {
    d_x = at::mm(d_y, weight);
  }
}

// The parameters of all layers in one list: each layer's weight, then its bias if it has one.
struct FusedLinears : Function<FusedLinears> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList parameters, const std::vector<bool>& has_bias) {
    variable_list outputs, saved{x};
    size_t next = 0;
    for (const bool bias : has_bias) {
      const auto& weight = parameters[next++];
      outputs.push_back(at::linear(x, weight, bias ? parameters[next++] : at::Tensor()));
      saved.push_back(weight);
    }
    context->save_for_backward(saved);
    c10::List<bool> biases;
    for (const bool bias : has_bias) biases.push_back(bias);
    context->saved_data["has_bias"] = biases;
    context->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto has_bias = context->saved_data["has_bias"].toBoolList();
    at::Tensor d_x;
    variable_list d_parameters;
    for (size_t layer = 0; layer < incoming.size(); ++layer) {
      const auto& weight = saved[1 + layer];
      const auto& d_y = incoming[layer];
      const size_t place = 1 + d_parameters.size();
      const bool bias = has_bias[layer];
      const auto wanted = [&](size_t input) {
        return d_y.defined() && context->needs_input_grad(input);
      };
      if (wanted(0)) add_input_gradient(d_x, d_y, weight);
      d_parameters.push_back(wanted(place) ? weight_gradient(weight, d_y, x) : at::Tensor());
      if (bias) d_parameters.push_back(wanted(place + 1) ? column_sum(d_y) : at::Tensor());
    }
    d_parameters.insert(d_parameters.begin(), d_x);
    d_parameters.emplace_back();  // has_bias
    return d_parameters;
  }
};

// Is there anything to gain?
bool fits(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  return fits_kernels(x) && c10::GradMode::is_enabled() &&
         (layers.size() > 1 || layers[0].bias.defined());
}

}  // namespace

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  std::vector<at::Tensor> outputs;
  if (!fits(x, layers)) {
    for (const auto& [weight, bias] : layers) outputs.push_back(at::linear(x, weight, bias));
    return outputs;
  }
  variable_list parameters;
  std::vector<bool> has_bias;
  for (const auto& [weight, bias] : layers) {
    parameters.push_back(weight);
    if (bias.defined()) parameters.push_back(bias);
    has_bias.push_back(bias.defined());
  }
  const auto rows = x.reshape({-1, x.size(-1)});
  for (const auto& y : FusedLinears::apply(rows, at::TensorList(parameters), has_bias)) {
    auto shape = x.sizes().vec();
    shape.back() = y.size(-1);
    outputs.push_back(y.view(shape));
  }
  return outputs;
}

}  // namespace skein::ops
