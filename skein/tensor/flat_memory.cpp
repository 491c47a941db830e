// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/flat_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::tensor {

FlatBuffer& FlatBuffer::operator=(FlatBuffer&& other) noexcept {
  if (this != &other) {
    reset();
    memory_ = std::move(other.memory_);
    tensor_ = std::exchange(other.tensor_, at::Tensor());
    medium_ = other.medium_;
  }
  return *this;
}

void FlatBuffer::reset() {
  if (!tensor_.defined()) return;
  memory_->bytes_[medium_] -= static_cast<int64_t>(tensor_.nbytes());
  tensor_.reset();
  memory_.reset();
}

std::shared_ptr<FlatMemory> FlatMemory::create(at::Device device, HostAllocator pinned) {
  return std::shared_ptr<FlatMemory>(new FlatMemory(device, std::move(pinned)));
}

at::Tensor FlatMemory::allocate_pinned(int64_t numel, at::ScalarType dtype) const {
  if (!pinned_) {
    const auto options = at::TensorOptions(at::kCPU).dtype(dtype);
    return at::zeros({numel}, options.pinned_memory(device_.is_cuda()));
  }
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  return pinned_(bytes).view(dtype);
}

FlatBuffer FlatMemory::allocate(int64_t numel, at::ScalarType dtype, Medium medium) {
  SKEIN_CHECK(medium != Medium::kDisk, "flat buffers lie in memory");
  if (medium == Medium::kPinnedHost) return count(allocate_pinned(numel, dtype), medium);
  return count(at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device_)), medium);
}

FlatBuffer FlatMemory::allocate_unset(int64_t numel, at::ScalarType dtype) {
  return count(at::empty({numel}, at::TensorOptions().dtype(dtype).device(device_)),
               Medium::kDevice);
}

FlatBuffer FlatMemory::count(at::Tensor tensor, Medium medium) {
  FlatBuffer buffer;
  buffer.tensor_ = std::move(tensor);
  buffer.memory_ = shared_from_this();
  buffer.medium_ = medium;
  bytes_[medium] += static_cast<int64_t>(buffer.tensor_.nbytes());
  peak_bytes_[medium] = std::max(peak_bytes_[medium], bytes_[medium]);
  return buffer;
}

}  // namespace skein::tensor
