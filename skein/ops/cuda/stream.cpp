// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cuda/stream.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
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

std::string device_name(int device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

std::string pci_bus_id(int device) {
  char text[32] = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device));
  return text;
}

void synchronise(bool cuda) {
  if (cuda) c10::cuda::device_synchronize();
}

namespace {

// Before the first tensor there is no memory to speak of, and asking for it is an error.
bool is_in_use(bool cuda) { return cuda && c10::cuda::CUDACachingAllocator::get()->initialized(); }

}  // namespace

DeviceMemory device_memory(bool cuda) {
  if (!is_in_use(cuda)) return {};
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return {.allocated = stats.allocated_bytes[0].current,
          .reserved = stats.reserved_bytes[0].current,
          .peak = stats.allocated_bytes[0].peak};
}

int64_t free_device_memory() {
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const auto own = device_memory(true);
  return static_cast<int64_t>(free) + own.reserved - own.allocated;
}

void begin_peak(bool cuda) {
  if (is_in_use(cuda)) c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device());
}

}  // namespace skein::ops
