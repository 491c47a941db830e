// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What can this device do at most, and how busy is it?

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "skein/core/dtype.h"

namespace skein::report {

// Dense FLOP/s by the vendor's data sheet of matrix products that read `dtype` and accumulate in
// fp32; none for a device that the table does not know, for a type that it lacks, and for CPUs.
// `name` is CUDA's ("NVIDIA H200").
std::optional<double> peak_flops(std::string_view name, DType dtype);

// One line for the start of a run: the peak that MFU is measured against, or why there is none.
std::string describe_peak(std::string_view name, DType dtype);

struct DeviceLoad {
  int64_t utilisation_percent = 0;  // of time in which a kernel ran, as nvidia-smi says it
  int64_t memory_used_bytes = 0;    // by all processes
};

// The driver's own figures for one GPU, through libnvidia-ml loaded at run time. Asking takes well
// under a millisecond and does not wait for the GPU.
class GpuMonitor {
 public:
  // `pci_bus_id` as CUDA gives it ("0000:1B:00.0"): NVML numbers GPUs differently. None where the
  // library, the driver or that GPU is missing.
  static std::unique_ptr<GpuMonitor> open(const std::string& pci_bus_id);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  std::optional<DeviceLoad> load() const;

 private:
  struct Library;
  explicit GpuMonitor(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
};

}  // namespace skein::report
