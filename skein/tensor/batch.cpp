// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

#include <ATen/ops/from_blob.h>

namespace skein::tensor {
namespace {

// Through pinned memory: a copy from pageable memory would wait for the GPU's work before it.
at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device || !device.is_cuda()) return tensor.to(device);
  return tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

// A copy also on the CPU: the values belong to the host batch.
at::Tensor copied(const std::vector<int64_t>& values, at::IntArrayRef shape, at::Device device) {
  auto* first = const_cast<int64_t*>(values.data());  // NOLINT: only read
  const auto view = at::from_blob(first, shape, at::kLong);
  return device.is_cuda() ? moved(view, device) : view.clone();
}

}  // namespace

Batch to_device(const Batch& batch, at::Device device) {
  return {moved(batch.tokens, device), moved(batch.targets, device), moved(batch.documents, device),
          batch.num_targets};
}

Batch to_device(const HostBatch& batch, at::Device device) {
  return {copied(batch.tokens, {batch.rows, batch.length}, device),
          copied(batch.targets, {batch.rows, batch.length}, device),
          copied(batch.documents, {batch.rows}, device), batch.num_targets};
}

}  // namespace skein::tensor
