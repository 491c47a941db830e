// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "skein/ops/fused.h"
#include "skein/ops/swiglu_kernel.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct FusedSwiglu : Function<FusedSwiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    const auto y = at::empty_like(gate);
    swiglu_on_cuda({.gate = gate.const_data_ptr(),
                    .up = up.const_data_ptr(),
                    .y = y.mutable_data_ptr(),
                    .count = gate.numel(),
                    .type = element_type(gate)});
    context->save_for_backward({gate, up});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto &gate = saved[0], &up = saved[1];
    const auto d_y = incoming[0].contiguous();
    const auto d_gate = at::empty_like(gate), d_up = at::empty_like(up);
    swiglu_backward_on_cuda({.gate = gate.const_data_ptr(),
                             .up = up.const_data_ptr(),
                             .d_y = d_y.const_data_ptr(),
                             .d_gate = d_gate.mutable_data_ptr(),
                             .d_up = d_up.mutable_data_ptr(),
                             .count = gate.numel(),
                             .type = element_type(gate)});
    return {d_gate, d_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (!fits_kernels(gate)) return at::silu(gate) * up;
  return FusedSwiglu::apply(gate.contiguous(), up.contiguous());
}

}  // namespace skein::ops
