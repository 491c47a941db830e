// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "skein/ops/adamw_kernel.h"
#include "skein/ops/cpu/adamw.h"
#include "skein/ops/fused.h"
#include "skein/optim/offload.h"
#include "skein/tensor/dtype.h"

namespace skein::optim {
namespace {

// 16-bit weights lie beside their master, or have none; others are it.
bool is_narrow(const at::Tensor& parameters) { return parameters.element_size() == 2; }

void* separate_weights(const at::Tensor& parameters) {
  return is_narrow(parameters) ? parameters.mutable_data_ptr() : nullptr;
}

void* address(const at::Tensor& state) {
  return state.defined() ? state.mutable_data_ptr() : nullptr;
}

float* float_address(const at::Tensor& state) {
  return state.defined() ? state.mutable_data_ptr<float>() : nullptr;
}

bool is_uploaded(const OwnedRange& range) { return range.host && !range.parameters.is_cpu(); }

std::vector<tensor::Range> windows(int64_t numel, int64_t size) {
  std::vector<tensor::Range> list;
  for (int64_t begin = 0; begin < numel; begin += size) {
    list.push_back({begin, std::min(begin + size, numel)});
  }
  return list;
}

int64_t window_size(const OwnedRange& range) {
  if (range.host->states == Medium::kDisk) return range.host->side->disk.window();
  return is_uploaded(range) ? kUploadWindow : range.parameters.numel();
}

int64_t largest_window_bytes(const std::vector<OwnedRange>& ranges) {
  int64_t bytes = 0;
  for (const auto& range : ranges) {
    if (!is_uploaded(range)) continue;
    const auto numel = std::min(range.parameters.numel(), window_size(range));
    bytes = std::max(bytes, numel * range.parameters.element_size());
  }
  return bytes;
}

}  // namespace

// Tasks of a step run after each other; the first of them learns whether it is made.
struct AdamW::HostStep {
  uint64_t group = 0;  // of its tasks
  double learning_rate = 0;
  at::Tensor decision;              // (factor, skip) in host memory …
  tensor::Mark decided;             // … from here on
  std::optional<int64_t> number{};  // of the update, once it is known that there is one

  double factor() const { return decision[0].item<double>(); }
  bool is_skipped() const { return decision[1].item<double>() != 0; }
};

AdamW::AdamW(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
             tensor::FlatMemory& memory, uint64_t seed)
    : Optimizer(std::move(ranges), options, memory, seed), threads_(at::get_num_threads()) {
  for (const auto& range : this->ranges()) {
    if (!is_uploaded(range) || slots_) continue;
    slots_.emplace(range.host->side, largest_window_bytes(this->ranges()));
  }
}

// Tasks use this.
AdamW::~AdamW() {
  for (const auto& range : ranges()) {
    if (!range.host) continue;
    try {
      range.host->side->tasks.finish();
    } catch (...) {  // it was thrown to whoever waited for the weights
    }
    return;
  }
}

void AdamW::begin_step(double learning_rate, const Decision& decision) {
  step_ = {.learning_rate = learning_rate, .decision = decision, .on_cpu = {}};
  if (update_count().is_cuda()) update_count().add_(1);
  const auto host =
      std::ranges::find_if(ranges(), [](auto& range) { return range.host != nullptr; });
  if (host == ranges().end()) return;
  auto& side = *host->host->side;
  const auto values = at::stack({decision.factor, decision.skip.to(at::kDouble)});
  const uint64_t group = host_step_ ? host_step_->group + 1 : 0;
  host_step_ = std::make_shared<HostStep>();
  host_step_->group = group;
  host_step_->learning_rate = learning_rate;
  host_step_->decision = at::empty({2}, side.host_options(at::kDouble));
  side.down.follow(tensor::mark_of_caller(side.device));
  side.down.copy_and_keep(host_step_->decision, values);
  host_step_->decided = side.down.mark();
}

void AdamW::step_range(size_t range) {
  const auto& owned = ranges()[range];
  if (owned.host) {
    auto& side = *owned.host->side;
    // The old weights may still be in use.
    const auto issued = tensor::mark_of_caller(side.device);
    const auto update = [this, range, issued, step = host_step_, &side] {
      side.up.follow(issued);
      update_on_host(range, *step);
    };
    // Ranges lie in the order of forward, and come out of backward in the other: the host, which
    // falls behind, begins with what the next step waits for.
    owned.host->task =
        side.tasks.run({update, host_step_->group, range,
                        [gradients = owned.host->gradients] { return gradients.is_reached(); }});
    return;
  }
  for (auto& part : parts(range, step_.learning_rate)) {
    if (!update_count().is_cuda()) {
      step_.on_cpu.push_back(std::move(part));
    } else if (part.parameters.scalar_type() == at::kDouble) {
      update_by_torch(part, step_.decision);
    } else {
      update_on_cuda(part, step_.decision);
    }
  }
}

void AdamW::end_step() {
  if (update_count().is_cuda()) {
    update_count().sub_(step_.decision.skip);
  } else if (step_.decision.skip.item<float>() == 0) {
    update_count().add_(1);
    update_on_cpu(step_.on_cpu, {.number = static_cast<int64_t>(update_count().item<float>()),
                                 .factor = step_.decision.factor.item<double>()});
  }
  step_ = {};
}

std::vector<AdamW::Part> AdamW::parts(size_t range, double learning_rate) const {
  const auto& weights = ranges()[range].parameters;
  const tensor::Range all{0, weights.numel()};
  return parts(range, {all, weights, states_in(range, all)}, learning_rate);
}

std::vector<AdamW::Part> AdamW::parts(size_t range, const Window& window,
                                      double learning_rate) const {
  std::vector<Part> list;
  const auto& owned = ranges()[range];
  const auto& weights = window.weights;
  for (const auto& group : owned.groups) {
    const auto cut = intersect(group.range, window.elements);
    if (cut.empty()) continue;
    const int64_t begin = cut.begin - window.elements.begin;
    const auto kept = [&](const char* name) {
      const auto found = std::ranges::find(window.states, name, &NamedState::name);
      if (found == window.states.end()) return at::Tensor();
      return found->data.narrow(0, begin / found->block, cut.size() / found->block);
    };
    const auto parameters = weights.narrow(0, begin, cut.size());
    list.push_back({.parameters = parameters,
                    .gradients = owned.gradients.narrow(0, cut.begin, cut.size()),
                    .master = is_narrow(weights) ? kept("master") : parameters,
                    .exp_avg = kept("exp_avg"),
                    .exp_avg_sq = kept("exp_avg_sq"),
                    .exp_avg_scale = kept("exp_avg_scale"),
                    .exp_avg_sq_scale = kept("exp_avg_sq_scale"),
                    .rounding_key = rounding_key(range),
                    .first_element = owned.begin + cut.begin,
                    .learning_rate = learning_rate * group.rate,
                    .weight_decay = group.decay ? options().weight_decay : 0.0});
  }
  return list;
}

void AdamW::update_on_cpu(const std::vector<Part>& parts, const Update& update) const {
  std::vector<ops::HostAdamW> calls;
  for (const auto& part : parts) {
    calls.push_back({.weights = separate_weights(part.parameters),
                     .master = address(part.master),
                     .exp_avg = part.exp_avg.mutable_data_ptr(),
                     .exp_avg_sq = part.exp_avg_sq.mutable_data_ptr(),
                     .exp_avg_scale = float_address(part.exp_avg_scale),
                     .exp_avg_sq_scale = float_address(part.exp_avg_sq_scale),
                     .gradient = part.gradients.const_data_ptr(),
                     .count = part.parameters.numel(),
                     .type = tensor::dtype_of(part.parameters.scalar_type()),
                     .gradient_type = tensor::dtype_of(part.gradients.scalar_type()),
                     .factor = update.factor,
                     .step = update.number,
                     .rounding_key = part.rounding_key,
                     .first_element = part.first_element,
                     .learning_rate = part.learning_rate,
                     .beta1 = options().adam_beta1,
                     .beta2 = options().adam_beta2,
                     .epsilon = options().adam_epsilon,
                     .weight_decay = part.weight_decay});
  }
  ops::HostAdamWOptions options{.threads = threads_};
  if (update.team != nullptr) {
    options.loop = [&](int64_t count, const auto& work) {
      update.team->for_each_index(count, work);
    };
  }
  ops::adamw_on_cpu(calls, options);
}

// A task of the host's side.
void AdamW::update_on_host(size_t range, HostStep& step) {
  auto& host = *ranges()[range].host;
  const c10::DeviceGuard guard(host.side->device);
  step.decided.wait();
  if (step.is_skipped()) return;
  if (!step.number) step.number = ++host_update_count();
  host.gradients.wait();
  const auto& weights = ranges()[range].parameters;
  const auto part = [&](tensor::Range window) {
    return weights.narrow(0, window.begin, window.size());
  };
  if (is_on_disk(range)) {
    pass_from_disk(
        range, [&](tensor::Range window, const at::Tensor& passing, const RangeStates& states) {
          update_window(range, {window, passing.defined() ? passing : part(window), states}, step);
        });
  } else {
    for (const auto& window : windows(weights.numel(), window_size(ranges()[range]))) {
      update_window(range, {window, part(window), states_in(range, window)}, step);
    }
  }
  host.weights = host.side->up.mark();
}

void AdamW::update_window(size_t range, Window window, const HostStep& step) {
  const auto& owned = ranges()[range];
  const Update update{
      .number = *step.number, .factor = step.factor(), .team = &owned.host->side->team};
  if (!is_uploaded(owned)) {
    return update_on_cpu(parts(range, window, step.learning_rate), update);
  }
  const auto weights = window.weights;
  const auto slot = slots_->take(weights.numel(), weights.scalar_type());
  if (!state(range, "master").defined()) {  // what is updated are the weights themselves
    auto& up = owned.host->side->up;
    up.copy(slot, weights);
    up.mark().wait();
  }
  window.weights = slot;
  update_on_cpu(parts(range, window, step.learning_rate), update);
  slots_->send(weights, slot);
}

// 28 bytes of traffic per 16-bit parameter; 16 with moments in 8 bits; 14 where all is bf16.
void AdamW::update_on_cuda(const Part& part, const Decision& decision) {
  const auto update = part.exp_avg_scale.defined() ? ops::adamw_8bit_on_cuda
                      : part.master.defined()      ? ops::adamw_on_cuda
                                                   : ops::adamw_bfloat16_on_cuda;
  update({.weights = separate_weights(part.parameters),
          .master = float_address(part.master),
          .exp_avg = part.exp_avg.mutable_data_ptr(),
          .exp_avg_sq = part.exp_avg_sq.mutable_data_ptr(),
          .exp_avg_scale = float_address(part.exp_avg_scale),
          .exp_avg_sq_scale = float_address(part.exp_avg_sq_scale),
          .gradient = part.gradients.const_data_ptr(),
          .factor = decision.factor.const_data_ptr<double>(),
          .skip = decision.skip.const_data_ptr<float>(),
          .step = update_count().const_data_ptr<float>(),
          .count = part.parameters.numel(),
          .type = ops::element_type(part.parameters),
          .gradient_type = ops::element_type(part.gradients),
          .rounding_key = part.rounding_key,
          .first_element = part.first_element,
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
