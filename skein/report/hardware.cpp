// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/hardware.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "skein/report/gpu_table.h"

namespace skein::report {

std::optional<double> peak_flops(std::string_view name, DType dtype) {
  const auto* gpu = find_gpu(name);
  if (gpu == nullptr || gpu->flops(dtype) == 0) return std::nullopt;
  return gpu->flops(dtype);
}

std::string describe_peak(std::string_view name, DType dtype) {
  if (name.empty() || name == "cpu") return "no MFU: CPUs have no stated peak";
  const auto* gpu = find_gpu(name);
  if (gpu == nullptr) return fmt::format("no MFU: '{}' is not in the table of device peaks", name);
  const double flops = gpu->flops(dtype);
  if (flops == 0) return fmt::format("no MFU: {} has no native {}", name, dtype_word(dtype));
  return fmt::format("MFU against {:g} TFLOP/s ({} dense, {})", flops / 1e12, dtype_word(dtype),
                     name);
}

// NVML's C interface, as far as it is used: every call returns 0 when it succeeded.
struct GpuMonitor::Library {
  struct Utilisation {
    unsigned gpu, memory;
  };
  struct Memory {
    unsigned long long total, free, used;
  };
  using Device = void*;

  template <typename Function>
  bool find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
    return function != nullptr;
  }
  bool find_all() {
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2") &&
           find(utilisation, "nvmlDeviceGetUtilizationRates") &&
           find(memory, "nvmlDeviceGetMemoryInfo");
  }
  ~Library() {
    if (started) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  void* handle = nullptr;
  bool started = false;
  Device device = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus_id)(const char*, Device*) = nullptr;
  int (*utilisation)(Device, Utilisation*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
};

std::unique_ptr<GpuMonitor> GpuMonitor::open(const std::string& pci_bus_id) {
  auto library = std::make_unique<Library>();
  library->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr || !library->find_all()) return nullptr;
  library->started = library->init() == 0;
  if (!library->started || library->by_bus_id(pci_bus_id.c_str(), &library->device) != 0)
    return nullptr;
  return std::unique_ptr<GpuMonitor>(new GpuMonitor(std::move(library)));
}

GpuMonitor::GpuMonitor(std::unique_ptr<Library> library) : library_(std::move(library)) {}
GpuMonitor::~GpuMonitor() = default;

std::optional<DeviceLoad> GpuMonitor::load() const {
  Library::Utilisation utilisation{};
  Library::Memory memory{};
  if (library_->utilisation(library_->device, &utilisation) != 0 ||
      library_->memory(library_->device, &memory) != 0)
    return std::nullopt;
  return DeviceLoad{static_cast<int64_t>(utilisation.gpu), static_cast<int64_t>(memory.used)};
}

}  // namespace skein::report
