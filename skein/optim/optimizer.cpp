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
  open_disk(memory);
  allocate_states(memory);
  update_count_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(memory.device()));
  refresh_masters();
}

// The file has its size from the beginning.
void Optimizer::open_disk(tensor::FlatMemory& memory) {
  std::vector<int64_t> arrays;
  const DiskOptions* disk = nullptr;
  int64_t slot_bytes = 0;
  for (const auto& range : ranges_) {
    if (!range.host) continue;
    const auto weights = tensor::dtype_of(range.parameters.scalar_type());
    const int64_t numel = range.parameters.numel();
    int64_t bytes = range.host->parameters ? static_cast<int64_t>(range.parameters.nbytes()) : 0;
    if (range.host->states == Medium::kDisk) {
      for (const auto& state : state_tensors(options_, weights)) {
        arrays.push_back(numel / state.block * static_cast<int64_t>(dtype_bytes(state.dtype)));
        bytes += arrays.back();
      }
    }
    if (bytes == 0) continue;
    disk = &range.host->side->disk;
    const double each = static_cast<double>(bytes) / static_cast<double>(numel);
    slot_bytes = std::max(slot_bytes, disk_slot_bytes(*disk, numel, each));
  }
  if (disk == nullptr) return;
  if (!arrays.empty()) disk_ = std::make_shared<DiskFile>(*disk, arrays);
  windows_.emplace(memory, slot_bytes, disk->window());
}

void Optimizer::allocate_states(tensor::FlatMemory& memory) {
  for (const auto& range : ranges_) {
    auto& named = states_.emplace_back();
    const auto weights = tensor::dtype_of(range.parameters.scalar_type());
    const auto medium = range.host ? range.host->states : Medium::kDevice;
    for (const auto& [name, dtype, block] : state_tensors(options_, weights)) {
      const auto type = tensor::scalar_type_of(dtype);
      const int64_t numel = range.parameters.numel() / block;
      buffers_.push_back(medium == Medium::kDisk ? memory.adopt_from_disk(disk_->take(numel, type))
                                                 : memory.allocate(numel, type, medium));
      named.push_back({name, buffers_.back().tensor(), block});
    }
  }
}

bool Optimizer::is_on_disk(size_t range) const {
  const auto& host = ranges_[range].host;
  return host && (host->states == Medium::kDisk || host->parameters);
}

std::vector<PassingArray> Optimizer::passing_arrays(size_t range) const {
  const auto& owned = ranges_[range];
  std::vector<PassingArray> arrays;
  auto* file = owned.host->states == Medium::kDisk ? disk_.get() : nullptr;
  for (const auto& [name, data, block] : states_[range]) arrays.push_back({data, block, file});
  if (owned.host->parameters) arrays.push_back({owned.parameters, 1, owned.host->parameters.get()});
  return arrays;
}

void Optimizer::pass_from_disk(size_t range, const OnWindow& on_window) {
  const auto& owned = ranges_[range];
  windows_->pass(passing_arrays(range), owned.parameters.numel(),
                 [&](tensor::Range window, const std::vector<at::Tensor>& entries) {
                   RangeStates states;
                   for (const auto& [name, data, block] : states_[range]) {
                     states.push_back({name, entries[states.size()], block});
                   }
                   const bool has_weights = entries.size() > states.size();
                   on_window(window, has_weights ? entries.back() : at::Tensor(), states);
                 });
  // Who fetches the weights reads what has arrived.
  if (owned.host->parameters) windows_->settle();
}

at::Tensor Optimizer::state(size_t range, std::string_view name) const {
  const auto found = std::ranges::find(states_[range], name, &NamedState::name);
  return found == states_[range].end() ? at::Tensor() : found->data;
}

RangeStates Optimizer::states_in(size_t range, tensor::Range window) const {
  RangeStates states = states_[range];
  for (auto& [name, data, block] : states) {
    data = data.narrow(0, window.begin / block, window.size() / block);
  }
  return states;
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

void Optimizer::finish_updates() {
  for (const auto& range : ranges_) {
    if (range.host) range.host->wait();
  }
  if (windows_) windows_->settle();
}

const std::vector<RangeStates>& Optimizer::states(Access access) {
  finish_updates();
  if (disk_) disk_->use_as_memory(access);
  return states_;
}

void Optimizer::refresh_masters() {
  states(Access::kSet);
  for (const auto& range : ranges_) {
    if (range.host && range.host->parameters) range.host->parameters->use_as_memory(Access::kRead);
  }
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (auto master = state(i, "master"); master.defined()) master.copy_(ranges_[i].parameters);
  }
}

int64_t Optimizer::num_updates() {
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
