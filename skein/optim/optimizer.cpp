// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/optimizer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "skein/core/random.h"
#include "skein/optim/adamw.h"
#include "skein/optim/states.h"
#include "skein/tensor/dtype.h"

namespace skein::optim {

static_assert(tensor::kFlatAlignment % kStateBlock == 0, "blocks have one owner");

Optimizer::Optimizer(std::vector<OwnedRange> ranges, const config::OptimizerConfig& options,
                     tensor::FlatMemory& memory, uint64_t seed)
    : ranges_(std::move(ranges)), options_(options), seed_(seed) {
  for (const auto& range : ranges_) {
    auto& named = states_.emplace_back();
    const auto weights = tensor::dtype_of(range.parameters.scalar_type());
    const auto medium = range.host ? range.host->states : Medium::kDevice;
    for (const auto& [name, dtype, block] : state_tensors(options_, weights)) {
      const auto type = tensor::scalar_type_of(dtype);
      buffers_.push_back(memory.allocate(range.parameters.numel() / block, type, medium));
      named.push_back({name, buffers_.back().tensor(), block});
    }
  }
  update_count_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(memory.device()));
  refresh_masters();
}

at::Tensor Optimizer::state(size_t range, std::string_view name) const {
  const auto found = std::ranges::find(states_[range], name, &NamedState::name);
  return found == states_[range].end() ? at::Tensor() : found->data;
}

at::Tensor Optimizer::state(size_t range, std::string_view name, tensor::Range elements) const {
  const auto found = std::ranges::find(states_[range], name, &NamedState::name);
  if (found == states_[range].end()) return {};
  return found->data.narrow(0, elements.begin / found->block, elements.size() / found->block);
}

uint64_t Optimizer::rounding_key(size_t range) const {
  constexpr uint64_t kStreamTag = 0x726F756E64;  // "round": no other draw has this stream
  return random::mix(random::mix(seed_, kStreamTag), ranges_[range].segment);
}

void Optimizer::step(double learning_rate, const Decision& decision) {
  begin_step(learning_rate, decision);
  for (size_t i = 0; i < ranges_.size(); ++i) step_range(i);
  end_step();
}

void Optimizer::finish_updates() const {
  for (const auto& range : ranges_) {
    if (range.host) range.host->wait();
  }
}

const std::vector<RangeStates>& Optimizer::states() const {
  finish_updates();
  return states_;
}

void Optimizer::refresh_masters() {
  finish_updates();
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (auto master = state(i, "master"); master.defined()) master.copy_(ranges_[i].parameters);
  }
}

int64_t Optimizer::num_updates() const {
  finish_updates();
  const bool on_host =
      std::ranges::any_of(ranges_, [](auto& range) { return range.host != nullptr; });
  return on_host ? host_update_count_ : static_cast<int64_t>(update_count_.item<float>());
}

void Optimizer::set_num_updates(int64_t count) {
  finish_updates();
  update_count_.fill_(static_cast<double>(count));
  host_update_count_ = count;
}

std::unique_ptr<Optimizer> make_optimizer(std::vector<OwnedRange> ranges,
                                          const config::OptimizerConfig& options,
                                          tensor::FlatMemory& memory, uint64_t seed) {
  return std::make_unique<AdamW>(std::move(ranges), options, memory, seed);
}

}  // namespace skein::optim
