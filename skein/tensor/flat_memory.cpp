// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/flat_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace skein::tensor {

FlatBuffer& FlatBuffer::operator=(FlatBuffer&& other) noexcept {
  if (this != &other) {
    reset();
    memory_ = std::move(other.memory_);
    tensor_ = std::exchange(other.tensor_, at::Tensor());
  }
  return *this;
}

void FlatBuffer::reset() {
  if (!tensor_.defined()) return;
  memory_->bytes_ -= static_cast<int64_t>(tensor_.nbytes());
  tensor_.reset();
  memory_.reset();
}

std::shared_ptr<FlatMemory> FlatMemory::create(at::Device device) {
  return std::shared_ptr<FlatMemory>(new FlatMemory(device));
}

FlatBuffer FlatMemory::allocate(int64_t numel, at::ScalarType dtype) {
  return count(at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device_)));
}

FlatBuffer FlatMemory::allocate_unset(int64_t numel, at::ScalarType dtype) {
  return count(at::empty({numel}, at::TensorOptions().dtype(dtype).device(device_)));
}

FlatBuffer FlatMemory::count(at::Tensor tensor) {
  FlatBuffer buffer;
  buffer.tensor_ = std::move(tensor);
  buffer.memory_ = shared_from_this();
  bytes_ += static_cast<int64_t>(buffer.tensor_.nbytes());
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return buffer;
}

}  // namespace skein::tensor
