// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cpu/adamw.h"
#include "skein/ops/fused.h"
#include "skein/optim/states.h"
#include "skein/tensor/dtype.h"

namespace skein::optim {
namespace {

bool is_16_bit(const at::Tensor& tensor) { return tensor.element_size() == 2; }

void* separate_weights(const at::Tensor& parameters) {
  return is_16_bit(parameters) ? parameters.mutable_data_ptr() : nullptr;
}

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
  const auto list = parts(learning_rate);
  if (num_updates_.is_cuda()) {
    step_on_cuda(list, decision);
  } else {
    step_on_cpu(list, decision);
  }
}

std::vector<AdamW::Part> AdamW::parts(double learning_rate) const {
  std::vector<Part> list;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const auto& owned = ranges_[i];
    for (const auto& group : owned.groups) {
      const auto cut = [&range = group.range](const at::Tensor& whole) {
        return whole.narrow(0, range.begin, range.size());
      };
      list.push_back(
          {.parameters = cut(owned.parameters),
           .gradients = cut(owned.gradients),
           .state = {cut(states_[i].master), cut(states_[i].exp_avg), cut(states_[i].exp_avg_sq)},
           .learning_rate = learning_rate * group.rate,
           .weight_decay = group.decay ? options_.weight_decay : 0.0});
    }
  }
  return list;
}

void AdamW::step_on_cpu(const std::vector<Part>& parts, const Decision& decision) {
  if (decision.skip.item<float>() != 0) return;
  const int64_t step = num_updates() + 1;
  const auto factor = decision.factor.item<double>();
  std::vector<ops::HostAdamW> calls;
  for (const auto& part : parts) {
    calls.push_back({.weights = separate_weights(part.parameters),
                     .master = part.state.master.mutable_data_ptr(),
                     .exp_avg = part.state.exp_avg.mutable_data_ptr(),
                     .exp_avg_sq = part.state.exp_avg_sq.mutable_data_ptr(),
                     .gradient = part.gradients.const_data_ptr(),
                     .count = part.parameters.numel(),
                     .type = tensor::dtype_of(part.parameters.scalar_type()),
                     .gradient_type = tensor::dtype_of(part.gradients.scalar_type()),
                     .factor = factor,
                     .step = step,
                     .learning_rate = part.learning_rate,
                     .beta1 = options_.adam_beta1,
                     .beta2 = options_.adam_beta2,
                     .epsilon = options_.adam_epsilon,
                     .weight_decay = part.weight_decay});
  }
  ops::adamw_on_cpu(calls, {.threads = at::get_num_threads()});
  set_num_updates(step);
}

void AdamW::step_on_cuda(const std::vector<Part>& parts, const Decision& decision) {
  num_updates_.add_(1);
  for (const auto& part : parts) {
    if (part.state.master.scalar_type() == at::kFloat) {
      update_on_cuda(part, decision);
    } else {
      update_by_torch(part, decision);
    }
  }
  num_updates_.sub_(decision.skip);
}

// 28 bytes of traffic per 16-bit parameter.
void AdamW::update_on_cuda(const Part& part, const Decision& decision) {
  ops::adamw_on_cuda({.weights = separate_weights(part.parameters),
                      .master = part.state.master.mutable_data_ptr<float>(),
                      .exp_avg = part.state.exp_avg.mutable_data_ptr<float>(),
                      .exp_avg_sq = part.state.exp_avg_sq.mutable_data_ptr<float>(),
                      .gradient = part.gradients.const_data_ptr(),
                      .factor = decision.factor.const_data_ptr<double>(),
                      .skip = decision.skip.const_data_ptr<float>(),
                      .step = num_updates_.const_data_ptr<float>(),
                      .count = part.parameters.numel(),
                      .type = ops::element_type(part.parameters),
                      .gradient_type = ops::element_type(part.gradients),
                      .learning_rate = part.learning_rate,
                      .beta1 = options_.adam_beta1,
                      .beta2 = options_.adam_beta2,
                      .epsilon = options_.adam_epsilon,
                      .weight_decay = part.weight_decay});
}

// fp64, for proofs. Gradients are scaled chunk by chunk, in a copy: those of the range remain as
// they are.
void AdamW::update_by_torch(const Part& part, const Decision& decision) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  const int64_t count = part.parameters.numel();
  auto scaled = at::empty({std::min(kChunk, count)}, part.state.master.options_);
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, count);
    const auto cut = [&](const at::Tensor& whole) { return whole.slice(0, begin, end); };
    auto gradient = scaled.narrow(0, 0, end - begin);
    at::mul_out(gradient, cut(part.gradients), decision.factor);
    at::_fused_adamw_({cut(part.state.master)}, {gradient}, {cut(part.state.exp_avg)},
                      {cut(part.state.exp_avg_sq)}, {}, {num_updates_}, part.learning_rate,
                      options_.adam_beta1, options_.adam_beta2, part.weight_decay,
                      options_.adam_epsilon,
                      /*amsgrad=*/false, /*maximize=*/false,
                      /*grad_scale=*/{}, /*found_inf=*/decision.skip);
  }
}

int64_t AdamW::num_updates() const { return static_cast<int64_t>(num_updates_.item<float>()); }
void AdamW::set_num_updates(int64_t count) { num_updates_.fill_(static_cast<double>(count)); }

}  // namespace skein::optim
