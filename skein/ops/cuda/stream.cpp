// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "skein/ops/device.h"

namespace skein::ops {

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream(); }

void check_launch() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }

bool has_native_bfloat16(int device) {
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 8;
}

}  // namespace skein::ops
