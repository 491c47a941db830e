// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cpu/adamw.h"
#include "skein/ops/fused.h"
#include "skein/tensor/dtype.h"

namespace skein::optim {
namespace {

// 16-bit weights lie beside their master; others are it.
bool has_master(const at::Tensor& parameters) { return parameters.element_size() == 2; }

void* separate_weights(const at::Tensor& parameters) {
  return has_master(parameters) ? parameters.mutable_data_ptr() : nullptr;
}

}  // namespace

void AdamW::step(double learning_rate, const Decision& decision) {
  const auto list = parts(learning_rate);
  if (update_count().is_cuda()) {
    step_on_cuda(list, decision);
  } else {
    step_on_cpu(list, decision);
  }
}

std::vector<AdamW::Part> AdamW::parts(double learning_rate) const {
  std::vector<Part> list;
  for (size_t i = 0; i < ranges().size(); ++i) {
    const auto& owned = ranges()[i];
    for (const auto& group : owned.groups) {
      const auto cut = [&range = group.range](const at::Tensor& whole) {
        return whole.narrow(0, range.begin, range.size());
      };
      list.push_back(
          {.parameters = cut(owned.parameters),
           .gradients = cut(owned.gradients),
           .master = cut(has_master(owned.parameters) ? state(i, "master") : owned.parameters),
           .exp_avg = cut(state(i, "exp_avg")),
           .exp_avg_sq = cut(state(i, "exp_avg_sq")),
           .learning_rate = learning_rate * group.rate,
           .weight_decay = group.decay ? options().weight_decay : 0.0});
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
                     .master = part.master.mutable_data_ptr(),
                     .exp_avg = part.exp_avg.mutable_data_ptr(),
                     .exp_avg_sq = part.exp_avg_sq.mutable_data_ptr(),
                     .gradient = part.gradients.const_data_ptr(),
                     .count = part.parameters.numel(),
                     .type = tensor::dtype_of(part.parameters.scalar_type()),
                     .gradient_type = tensor::dtype_of(part.gradients.scalar_type()),
                     .factor = factor,
                     .step = step,
                     .learning_rate = part.learning_rate,
                     .beta1 = options().adam_beta1,
                     .beta2 = options().adam_beta2,
                     .epsilon = options().adam_epsilon,
                     .weight_decay = part.weight_decay});
  }
  ops::adamw_on_cpu(calls, {.threads = at::get_num_threads()});
  set_num_updates(step);
}

void AdamW::step_on_cuda(const std::vector<Part>& parts, const Decision& decision) {
  const auto& count = update_count();
  count.add_(1);
  for (const auto& part : parts) {
    if (part.master.scalar_type() == at::kFloat) {
      update_on_cuda(part, decision);
    } else {
      update_by_torch(part, decision);
    }
  }
  count.sub_(decision.skip);
}

// 28 bytes of traffic per 16-bit parameter.
void AdamW::update_on_cuda(const Part& part, const Decision& decision) {
  ops::adamw_on_cuda({.weights = separate_weights(part.parameters),
                      .master = part.master.mutable_data_ptr<float>(),
                      .exp_avg = part.exp_avg.mutable_data_ptr<float>(),
                      .exp_avg_sq = part.exp_avg_sq.mutable_data_ptr<float>(),
                      .gradient = part.gradients.const_data_ptr(),
                      .factor = decision.factor.const_data_ptr<double>(),
                      .skip = decision.skip.const_data_ptr<float>(),
                      .step = update_count().const_data_ptr<float>(),
                      .count = part.parameters.numel(),
                      .type = ops::element_type(part.parameters),
                      .gradient_type = ops::element_type(part.gradients),
                      .learning_rate = part.learning_rate,
                      .beta1 = options().adam_beta1,
                      .beta2 = options().adam_beta2,
                      .epsilon = options().adam_epsilon,
                      .weight_decay = part.weight_decay});
}

// fp64, for proofs. Gradients are scaled chunk by chunk, in a copy: those of the range remain as
// they are.
void AdamW::update_by_torch(const Part& part, const Decision& decision) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  const int64_t count = part.parameters.numel();
  auto scaled = at::empty({std::min(kChunk, count)}, part.master.options());
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, count);
    const auto cut = [&](const at::Tensor& whole) { return whole.slice(0, begin, end); };
    auto gradient = scaled.narrow(0, 0, end - begin);
    at::mul_out(gradient, cut(part.gradients), decision.factor);
    at::_fused_adamw_({cut(part.master)}, {gradient}, {cut(part.exp_avg)}, {cut(part.exp_avg_sq)},
                      {}, {update_count()}, part.learning_rate, options().adam_beta1,
                      options().adam_beta2, part.weight_decay, options().adam_epsilon,
                      /*amsgrad=*/false, /*maximize=*/false,
                      /*grad_scale=*/{}, /*found_inf=*/decision.skip);
  }
}

}  // namespace skein::optim
