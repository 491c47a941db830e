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
#include <memory>

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
  static std::shared_ptr<FlatMemory> create(at::Device device);

  // Zeroed: padding must stay zero, for it takes part in sums and norms. What lies on a disk is no
  // tensor.
  FlatBuffer allocate(int64_t numel, at::ScalarType dtype, Medium medium = Medium::kDevice);
  // For what is overwritten as a whole, padding included.
  FlatBuffer allocate_unset(int64_t numel, at::ScalarType dtype);

  at::Device device() const { return device_; }
  int64_t bytes() const { return bytes_.device; }
  int64_t peak_bytes() const { return peak_bytes_.device; }
  const MediumBytes& all_bytes() const { return bytes_; }
  const MediumBytes& all_peak_bytes() const { return peak_bytes_; }  // each at its own time

 private:
  friend class FlatBuffer;
  explicit FlatMemory(at::Device device) : device_(device) {}
  FlatBuffer count(at::Tensor tensor, Medium medium);

  at::Device device_;
  MediumBytes bytes_, peak_bytes_;
};

}  // namespace skein::tensor
