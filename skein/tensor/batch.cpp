// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

namespace skein::tensor {

namespace {

// Through pinned memory: a copy from pageable memory would wait for the GPU's work before it.
at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  if (!device.is_cuda()) return tensor.to(device);
  return tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

}  // namespace

Batch to_device(const Batch& batch, at::Device device) {
  return {moved(batch.tokens, device), moved(batch.targets, device), moved(batch.documents, device),
          batch.num_targets};
}

}  // namespace skein::tensor
