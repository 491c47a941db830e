// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/host_side.h"

#include <utility>

#include "skein/optim/offload.h"

namespace skein::optim {

HostSide::HostSide(at::Device rank_device, std::shared_ptr<tensor::FlatMemory> flat_memory)
    : device(rank_device),
      memory(std::move(flat_memory)),
      down(device),
      fetch(device),
      up(device) {}

UploadSlots::UploadSlots(std::shared_ptr<HostSide> side, int64_t bytes) : side_(std::move(side)) {
  for (int64_t i = 0; i < kUploadSlots; ++i) {
    slots_.push_back({side_->memory->allocate(bytes, at::kByte, Medium::kPinnedHost), {}});
  }
}

at::Tensor UploadSlots::take(int64_t numel, at::ScalarType dtype) {
  current_ = (current_ + 1) % slots_.size();
  slots_[current_].sent.wait();
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  return slots_[current_].buffer.tensor().narrow(0, 0, bytes).view(dtype);
}

void UploadSlots::send(const at::Tensor& target, const at::Tensor& slot) {
  side_->up.copy(target, slot);
  slots_[current_].sent = side_->up.mark();
}

}  // namespace skein::optim
