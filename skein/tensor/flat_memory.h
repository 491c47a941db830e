// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Flat buffers, and how many bytes of them a rank holds in each medium.
//
// Parameters, gradients and optimizer states live in a few long one-dimensional tensors. They are
// all allocated here, so that "peak memory of the sharding" is a counted figure and not an
// estimate.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "skein/core/medium.h"

namespace skein::tensor {

class FlatMemory;

// Owns one buffer; freed and uncounted with it.
class FlatBuffer {
 public:
  FlatBuffer() = default;
  FlatBuffer(FlatBuffer&& other) noexcept { *this = std::move(other); }
  FlatBuffer& operator=(FlatBuffer&& other) noexcept;
  ~FlatBuffer() { reset(); }

  const at::Tensor& tensor() const { return tensor_; }
  explicit operator bool() const { return tensor_.defined(); }
  void reset();

 private:
  friend class FlatMemory;
  std::shared_ptr<FlatMemory> memory_;
  at::Tensor tensor_;
  Medium medium_ = Medium::kDevice;
};

// One per rank. Not thread-safe.
class FlatMemory : public std::enable_shared_from_this<FlatMemory> {
 public:
  // So many bytes of host memory, as a byte tensor of zeros. torch's own pinned memory comes in
  // powers of two.
  using HostAllocator = std::function<at::Tensor(int64_t bytes)>;

  // `pinned` makes the host memory of a GPU's rank; without it torch does.
  static std::shared_ptr<FlatMemory> create(at::Device device, HostAllocator pinned = nullptr);

  // Zeroed: padding must stay zero, for it takes part in sums and norms. Not for kDisk.
  FlatBuffer allocate(int64_t numel, at::ScalarType dtype, Medium medium = Medium::kDevice);
  // Counts a tensor of a file; whoever owns that outlives it.
  FlatBuffer adopt_from_disk(at::Tensor tensor) { return count(std::move(tensor), Medium::kDisk); }
  // For what is overwritten as a whole, padding included.
  FlatBuffer allocate_unset(int64_t numel, at::ScalarType dtype);

  at::Device device() const { return device_; }
  int64_t bytes() const { return bytes_.device; }
  int64_t peak_bytes() const { return peak_bytes_.device; }
  const MediumBytes& all_bytes() const { return bytes_; }
  const MediumBytes& all_peak_bytes() const { return peak_bytes_; }  // each at its own time

 private:
  friend class FlatBuffer;
  FlatMemory(at::Device device, HostAllocator pinned)
      : device_(device), pinned_(std::move(pinned)) {}
  at::Tensor allocate_pinned(int64_t numel, at::ScalarType dtype) const;
  FlatBuffer count(at::Tensor tensor, Medium medium);

  at::Device device_;
  HostAllocator pinned_;
  MediumBytes bytes_, peak_bytes_;
};

}  // namespace skein::tensor
