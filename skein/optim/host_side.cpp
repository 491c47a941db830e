// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/host_side.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "skein/optim/offload.h"

namespace skein::optim {

HostSide::HostSide(at::Device rank_device, std::shared_ptr<tensor::FlatMemory> flat_memory,
                   DiskOptions disk_options, int update_threads)
    : device(rank_device),
      memory(std::move(flat_memory)),
      disk(std::move(disk_options)),
      team(update_threads > 0 ? update_threads : at::get_num_threads()),
      down(device),
      fetch(device),
      up(device) {}

void HostSide::keep_until(tensor::Mark copied, tensor::FlatBuffer buffer) {
  if (leaving_) {
    left_.order_caller();
    leaving_.reset();
  }
  if (device.is_cpu()) return;  // its copies have ended
  leaving_ = std::move(buffer);
  left_ = std::move(copied);
}

void HostSide::open_parameters(std::span<const int64_t> shard_bytes) {
  parameters = std::make_shared<DiskFile>(disk, shard_bytes);
  reader.emplace(*memory, disk_piece_bytes(disk, std::ranges::max(shard_bytes)));
}

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
