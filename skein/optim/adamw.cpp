// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "skein/ops/adamw_kernel.h"
#include "skein/ops/fused.h"
#include "skein/optim/states.h"

namespace skein::optim {
namespace {

// Gradients are widened and scaled chunk by chunk, in a copy that a cache can hold: those of the
// range remain as they are.
constexpr int64_t kChunk = int64_t{1} << 20;

bool is_16_bit(const at::Tensor& tensor) { return tensor.element_size() == 2; }

at::Tensor& member(AdamState& state, std::string_view name) {
  if (name == "master") return state.master;
  return name == "exp_avg" ? state.exp_avg : state.exp_avg_sq;
}

}  // namespace

AdamW::AdamW(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
             tensor::FlatMemory& memory)
    : ranges_(std::move(ranges)), options_(options) {
  for (const auto& range : ranges_) {
    AdamState state{.master = range.parameters};
    auto& named = named_states_.emplace_back();
    for (const auto& [name, bytes] : state_tensors(options_, range.parameters.element_size())) {
      const auto dtype = bytes == 8 ? at::kDouble : at::kFloat;
      buffers_.push_back(memory.allocate(range.parameters.numel(), dtype));
      member(state, name) = buffers_.back().tensor();
      named.push_back({name, buffers_.back().tensor()});
    }
    states_.push_back(std::move(state));
  }
  num_updates_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(memory.device()));
  refresh_masters();
}

void AdamW::refresh_masters() {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (is_16_bit(ranges_[i].parameters)) states_[i].master.copy_(ranges_[i].parameters);
  }
}

void AdamW::step(double learning_rate, const Decision& decision) {
  num_updates_.add_(1);
  for (size_t i = 0; i < ranges_.size(); ++i) {
    for (const auto& [range, decays, rate] : ranges_[i].groups) {
      const auto cut = [&](const at::Tensor& whole) {
        return whole.narrow(0, range.begin, range.size());
      };
      const Part part{
          .parameters = cut(ranges_[i].parameters),
          .gradients = cut(ranges_[i].gradients),
          .state = {cut(states_[i].master), cut(states_[i].exp_avg), cut(states_[i].exp_avg_sq)},
          .learning_rate = learning_rate * rate,
          .weight_decay = decays ? options_.weight_decay : 0.0};
      const auto& master = part.state.master;
      if (master.is_cuda() && master.scalar_type() == at::kFloat) {
        update_on_cuda(part, decision);
      } else {
        update(part, decision);
      }
    }
  }
  num_updates_.sub_(decision.skip);
}

void AdamW::update(const Part& part, const Decision& decision) {
  const auto& [parameters, gradients, state, learning_rate, weight_decay] = part;
  const int64_t count = parameters.numel();
  // One element, not none: a scalar tensor would take the gradients' dtype and be rounded to it.
  const auto factor = decision.factor.to(state.master.scalar_type()).view({1});
  auto scaled = at::empty({std::min(kChunk, count)}, state.master.options());
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, count);
    const auto cut = [&](const at::Tensor& whole) { return whole.slice(0, begin, end); };
    auto gradient = scaled.narrow(0, 0, end - begin);
    at::mul_out(gradient, cut(gradients), factor);
    at::_fused_adamw_({cut(state.master)}, {gradient}, {cut(state.exp_avg)},
                      {cut(state.exp_avg_sq)}, {}, {num_updates_}, learning_rate,
                      options_.adam_beta1, options_.adam_beta2, weight_decay, options_.adam_epsilon,
                      /*amsgrad=*/false, /*maximize=*/false,
                      /*grad_scale=*/{}, /*found_inf=*/decision.skip);
    if (is_16_bit(parameters)) cut(parameters).copy_(cut(state.master));
  }
}

// 28 bytes of traffic per 16-bit parameter.
void AdamW::update_on_cuda(const Part& part, const Decision& decision) {
  const auto& [parameters, gradients, state, learning_rate, weight_decay] = part;
  const bool separate = is_16_bit(parameters);
  ops::adamw_on_cuda({.weights = separate ? parameters.mutable_data_ptr() : nullptr,
                      .master = state.master.mutable_data_ptr<float>(),
                      .exp_avg = state.exp_avg.mutable_data_ptr<float>(),
                      .exp_avg_sq = state.exp_avg_sq.mutable_data_ptr<float>(),
                      .gradient = gradients.const_data_ptr(),
                      .factor = decision.factor.const_data_ptr<double>(),
                      .skip = decision.skip.const_data_ptr<float>(),
                      .step = num_updates_.const_data_ptr<float>(),
                      .count = parameters.numel(),
                      .type = ops::element_type(parameters),
                      .gradient_type = ops::element_type(gradients),
                      .learning_rate = learning_rate,
                      .beta1 = options_.adam_beta1,
                      .beta2 = options_.adam_beta2,
                      .epsilon = options_.adam_epsilon,
                      .weight_decay = weight_decay});
}

int64_t AdamW::num_updates() const { return static_cast<int64_t>(num_updates_.item<float>()); }
void AdamW::set_num_updates(int64_t count) { num_updates_.fill_(static_cast<double>(count)); }

}  // namespace skein::optim
