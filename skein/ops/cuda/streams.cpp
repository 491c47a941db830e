// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Runs the launchers of this folder on torch's current stream, and turns launch failures into
// exceptions. The launchers themselves are free of torch.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "skein/ops/cuda/dropout.h"

namespace skein::ops {

void dropout_on_cuda(const DropoutCall& call, int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard guard(index);
  launch_dropout(call, c10::cuda::getCurrentCUDAStream(index));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace skein::ops
