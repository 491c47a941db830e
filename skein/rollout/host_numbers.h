// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Private to this folder: numbers of the host on their way to a device.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace skein::rollout {

// Host memory whose copies from and to a GPU go on beside the host; torch reuses it when they have
// ended.
inline at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType type, at::Device device) {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(device.is_cuda()));
}

inline at::Tensor to_device(std::span<const int64_t> values, at::Device device) {
  const auto host = host_empty({std::ssize(values)}, at::kLong, device);
  std::ranges::copy(values, host.mutable_data_ptr<int64_t>());
  return host.to(device, /*non_blocking=*/true);
}

inline at::Tensor to_device(std::span<const int32_t> values, at::Device device) {
  const auto host = host_empty({std::ssize(values)}, at::kInt, device);
  std::ranges::copy(values, host.mutable_data_ptr<int32_t>());
  return host.to(device, /*non_blocking=*/true);
}

}  // namespace skein::rollout
