// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the code above the kernels asks of a GPU. In a build without CUDA there is none: waiting
// returns at once, figures are 0.

#include <cstdint>
#include <string>

namespace skein::ops {

// By compute capability: torch's own answer counts emulation.
bool has_native_bfloat16(int cuda_device);

// "NVIDIA H200", and "0000:1B:00.0". Empty in a build without CUDA.
std::string device_name(int cuda_device);
std::string pci_bus_id(int cuda_device);

// Waits until the current device is idle.
void synchronise(bool cuda);

// Bytes of torch's allocator on the current device.
struct DeviceMemory {
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t peak = 0;  // most that was allocated
};
DeviceMemory device_memory(bool cuda);
// What tensors can still have of the current GPU: what nobody holds, and what the allocator holds
// and nobody uses.
int64_t free_device_memory();
// The peak is what is allocated now.
void begin_peak(bool cuda);

}  // namespace skein::ops
