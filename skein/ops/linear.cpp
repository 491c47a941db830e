// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "skein/core/error.h"
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

// Of 16-bit factors in fp32. CPUs have no such product.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  if (a.element_size() != 2) return at::mm(a, b);
  return a.is_cuda() ? at::mm(a, b, at::kFloat) : at::mm(a.to(at::kFloat), b.to(at::kFloat));
}

// What is constant to autograd.
struct Plan : torch::CustomClassHolder {
  struct Layer {
    bool bias = false, low_rank = false;
    double scale = 1;
    Dropout dropout{};
    std::optional<Nf4Matrix> nf4{};  // of its weight

    bool drops() const { return dropout.probability > 0; }
  };
  std::vector<Layer> layers;
  std::vector<int64_t> shape;  // of x

  // `rows` are those of x, or of its gradient.
  at::Tensor dropped(const Layer& layer, const at::Tensor& rows) const {
    return layer.drops() ? drop(rows.view(shape), layer.dropout).view(rows.sizes()) : rows;
  }
};

// As products take it.
at::Tensor whole_weight(const std::optional<Nf4Matrix>& nf4, const at::Tensor& stored,
                        at::ScalarType dtype) {
  return nf4 ? dequantise_nf4(stored, *nf4, dtype) : stored;
}

using PlanPointer = c10::intrusive_ptr<Plan>;

// The tensors of one layer, and where its weight stands in the list of all layers' parameters:
// weight, bias if it has one, then a and b.
struct LayerTensors {
  size_t place = 0;
  at::Tensor weight, bias, a, b;  // a and b in the input's dtype

  size_t a_place() const { return place + 1 + (bias.defined() ? 1 : 0); }
};

std::vector<LayerTensors> sort(const Plan& plan, at::TensorList parameters, at::ScalarType dtype) {
  std::vector<LayerTensors> sorted;
  size_t next = 0;
  for (const auto& layer : plan.layers) {
    LayerTensors tensors{.place = next, .weight = parameters[next]};
    ++next;
    if (layer.bias) tensors.bias = parameters[next++];
    if (layer.low_rank) {
      tensors.a = parameters[next++].to(dtype);
      tensors.b = parameters[next++].to(dtype);
    }
    sorted.push_back(std::move(tensors));
  }
  return sorted;
}

// x · aᵀ of all layers with a low-rank part: one product for those that take x itself.
variable_list inner_values(const at::Tensor& x, const Plan& plan,
                           const std::vector<LayerTensors>& layers) {
  variable_list inner(layers.size()), shared;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!plan.layers[i].low_rank) continue;
    if (plan.layers[i].drops()) {
      inner[i] = at::mm(plan.dropped(plan.layers[i], x), layers[i].a.t());
    } else {
      shared.push_back(layers[i].a);
    }
  }
  if (shared.empty()) return inner;
  const auto values = at::mm(x, at::cat(shared).t());
  int64_t begin = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!plan.layers[i].low_rank || plan.layers[i].drops()) continue;
    const auto rank = layers[i].a.size(0);
    inner[i] = values.narrow(1, std::exchange(begin, begin + rank), rank);
  }
  return inner;
}

// The gradients of what goes through the a's, collected over the layers.
class InnerGradients {
 public:
  InnerGradients(const Plan& plan, at::Tensor x) : plan_(plan), x_(std::move(x)) {}

  // `d_inner` (N, rank) of a layer whose `a` stands at `place`; d_a only where wanted.
  void add(const Plan::Layer& layer, const LayerTensors& tensors, const at::Tensor& d_inner,
           at::Tensor* d_x, at::Tensor* d_a) {
    if (!layer.drops()) {
      d_inner_.push_back(d_inner);
      a_.push_back(tensors.a);
      d_a_.push_back(d_a);
      return;
    }
    if (d_a) *d_a = wide_product(d_inner.t(), plan_.dropped(layer, x_));
    if (!d_x) return;
    const auto back = plan_.dropped(layer, at::mm(d_inner, tensors.a));
    if (d_x->defined()) {
      d_x->add_(back);
    } else {
      *d_x = back;
    }
  }

  // Those that share x, in one product each.
  void finish(at::Tensor* d_x) {
    if (a_.empty()) return;
    const auto d_inner = at::cat(d_inner_, 1);
    if (d_x) add_input_gradient(*d_x, d_inner, at::cat(a_));
    if (std::ranges::all_of(d_a_, [](auto* d_a) { return d_a == nullptr; })) return;
    const auto all = wide_product(d_inner.t(), x_);
    int64_t begin = 0;
    for (size_t i = 0; i < a_.size(); ++i) {
      const auto rank = a_[i].size(0);
      const auto part = all.narrow(0, std::exchange(begin, begin + rank), rank);
      if (d_a_[i]) *d_a_[i] = part;
    }
  }

 private:
  const Plan& plan_;
  at::Tensor x_;
  variable_list d_inner_, a_;
  std::vector<at::Tensor*> d_a_;
};

struct FusedLinears : Function<FusedLinears> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList parameters, const PlanPointer& plan) {
    const auto layers = sort(*plan, parameters, x.scalar_type());
    const auto inner = inner_values(x, *plan, layers);
    variable_list outputs;
    bool keeps_x = false;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& [place, weight, bias, a, b] = layers[i];
      auto y = at::linear(x, whole_weight(plan->layers[i].nf4, weight, x.scalar_type()), bias);
      if (a.defined()) y.addmm_(inner[i], b.t(), 1, plan->layers[i].scale);
      outputs.push_back(y);
      keeps_x = keeps_x || weight.requires_grad() ||
                (a.defined() && parameters[layers[i].a_place()].requires_grad());
    }
    variable_list saved{keeps_x ? x : at::Tensor()};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    saved.insert(saved.end(), inner.begin(), inner.end());
    context->save_for_backward(saved);
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    context->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto plan =
        c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const size_t num_parameters = saved.size() - 1 - incoming.size();
    const auto parameters = at::TensorList(saved).slice(1, num_parameters);
    const auto inner = at::TensorList(saved).slice(1 + num_parameters);
    const auto used = std::ranges::find_if(incoming, [](auto& d) { return d.defined(); });
    variable_list gradients(1 + num_parameters + 1);  // x, parameters, plan
    if (used == incoming.end()) return gradients;

    const auto wanted = [&](size_t place) {
      return context->needs_input_grad(1 + place) ? &gradients[1 + place] : nullptr;
    };
    auto* const d_x = context->needs_input_grad(0) ? &gradients[0] : nullptr;
    const auto layers = sort(*plan, parameters, used->scalar_type());
    InnerGradients inner_gradients(*plan, x);
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& d_y = incoming[i];
      if (!d_y.defined()) continue;
      const auto& layer = plan->layers[i];
      const auto& tensors = layers[i];
      if (d_x) {
        add_input_gradient(*d_x, d_y, whole_weight(layer.nf4, tensors.weight, d_y.scalar_type()));
      }
      if (auto* d_w = wanted(tensors.place)) *d_w = weight_gradient(tensors.weight, d_y, x);
      auto* const d_bias = layer.bias ? wanted(tensors.place + 1) : nullptr;
      if (d_bias) *d_bias = column_sum(d_y);
      if (!layer.low_rank) continue;
      auto* const d_b = wanted(tensors.a_place() + 1);
      if (d_b) *d_b = wide_product(d_y.t(), inner[i]).mul_(layer.scale);
      const auto d_inner = at::mm(d_y, tensors.b).mul_(layer.scale);
      inner_gradients.add(layer, tensors, d_inner, d_x, wanted(tensors.a_place()));
    }
    inner_gradients.finish(d_x);
    return gradients;
  }
};

bool has_low_rank(const std::vector<LinearParameters>& layers) {
  return std::ranges::any_of(layers, [](const auto& layer) { return layer.low_rank.has_value(); });
}

// Is there anything to gain? Of a weight in 4 bits autograd would keep the values for backward.
bool fits(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  if (!c10::GradMode::is_enabled()) return false;
  if (std::ranges::any_of(layers, [](const auto& layer) { return layer.nf4.has_value(); })) {
    return true;
  }
  return fits_kernels(x) && (layers.size() > 1 || layers[0].bias.defined());
}

// What decoding multiplies, a few rows at a time, waits for the start of each product: fewer are
// faster. Of more rows than this it is the products themselves.
constexpr int64_t kFewRows = 512;

// Weights of one storage that lie behind each other, as flat memory has them.
bool lie_together(const std::vector<LinearParameters>& layers) {
  const auto& first = layers.front().weight;
  const char* next = nullptr;
  for (const auto& [weight, bias, low_rank, nf4] : layers) {
    if (nf4 || low_rank || bias.defined() || !weight.is_contiguous()) return false;
    if (weight.size(1) != first.size(1) || !weight.is_alias_of(first)) return false;
    const auto* begin = static_cast<const char*>(weight.const_data_ptr());
    if (next != nullptr && begin != next) return false;
    next = begin + weight.nbytes();
  }
  return true;
}

// The same products in one call, without gradients; where layers have different sizes the outputs
// are views of one tensor.
std::vector<at::Tensor> products_at_once(const at::Tensor& x,
                                         const std::vector<LinearParameters>& layers) {
  const auto in = x.size(-1);
  const auto rows = x.reshape({-1, in});
  const auto& first = layers.front().weight;
  const auto is_like_first = [&](const auto& layer) {
    return layer.weight.sizes() == first.sizes();
  };
  std::vector<int64_t> outs;
  for (const auto& layer : layers) outs.push_back(layer.weight.size(0));
  auto shape = x.sizes().vec();
  std::vector<at::Tensor> outputs;
  if (std::ranges::all_of(layers, is_like_first)) {
    const auto count = std::ssize(layers), out = outs[0];
    const auto weights = first.detach().as_strided({count, in, out}, {out * in, 1, in});
    shape.back() = out;
    for (const auto& y : at::bmm(rows.expand({count, -1, -1}), weights).unbind()) {
      outputs.push_back(y.view(shape));
    }
    return outputs;
  }
  shape.back() = std::accumulate(outs.begin(), outs.end(), int64_t{0});
  const auto weights = first.detach().as_strided({in, shape.back()}, {1, in});
  return at::mm(rows, weights).view(shape).split_with_sizes(outs, -1);
}

PlanPointer plan_of(const at::Tensor& x, const std::vector<LinearParameters>& layers,
                    variable_list& parameters) {
  auto plan = c10::make_intrusive<Plan>();
  plan->shape = x.sizes().vec();
  for (const auto& [weight, bias, low_rank, nf4] : layers) {
    Plan::Layer layer{.bias = bias.defined(), .low_rank = low_rank.has_value(), .nf4 = nf4};
    parameters.push_back(weight);
    if (bias.defined()) parameters.push_back(bias);
    if (low_rank) {
      layer.scale = low_rank->scale;
      layer.dropout = low_rank->dropout;
      parameters.push_back(low_rank->a);
      parameters.push_back(low_rank->b);
    }
    plan->layers.push_back(std::move(layer));
  }
  return plan;
}

}  // namespace

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  std::vector<at::Tensor> outputs;
  const bool few = x.is_cuda() && !c10::GradMode::is_enabled() && layers.size() > 1 &&
                   x.numel() <= kFewRows * x.size(-1);
  if (few && lie_together(layers)) return products_at_once(x, layers);
  if (!fits(x, layers) && !has_low_rank(layers)) {
    for (const auto& layer : layers) {
      const auto weight = whole_weight(layer.nf4, layer.weight, x.scalar_type());
      outputs.push_back(at::linear(x, weight, layer.bias));
    }
    return outputs;
  }
  variable_list parameters;
  const auto plan = plan_of(x, layers, parameters);
  const auto rows = x.reshape({-1, x.size(-1)});
  for (const auto& y : FusedLinears::apply(rows, at::TensorList(parameters), plan)) {
    auto shape = x.sizes().vec();
    shape.back() = y.size(-1);
    outputs.push_back(y.view(shape));
  }
  return outputs;
}

}  // namespace skein::ops
