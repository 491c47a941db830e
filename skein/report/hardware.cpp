// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/hardware.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace skein::report {
namespace {

struct Peak {
  std::string_view words;   // all of them must stand in the device's name
  double bf16, fp16, fp32;  // TFLOP/s; 0: the device has no such arithmetic
};

// The first row that fits counts, so the narrower names stand first. GeForce figures are those
// with fp32 accumulation, half of what the box says.
constexpr Peak kPeaks[] = {
    {"GB200", 2500, 2500, 80},   {"B200", 2250, 2250, 75},      {"GH200", 989, 989, 67},
    {"H200", 989, 989, 67},      {"H100 NVL", 835, 835, 60},    {"H100 PCIe", 756, 756, 51},
    {"H100", 989, 989, 67},      {"H800 PCIe", 756, 756, 51},   {"H800", 989, 989, 67},
    {"H20", 148, 148, 44},       {"A100", 312, 312, 19.5},      {"A800", 312, 312, 19.5},
    {"A40", 149.7, 149.7, 37.4}, {"A6000", 154.8, 154.8, 38.7}, {"A10", 125, 125, 31.2},
    {"L4", 121, 121, 30.3},      {"L40S", 362, 362, 91.6},      {"L40", 181, 181, 90.5},
    {"L20", 119.5, 119.5, 59.8}, {"RTX 3090", 71, 71, 35.6},    {"RTX 4090", 165.2, 165.2, 82.6},
    {"T4", 0, 65, 8.1},          {"V100", 0, 125, 15.7},
};

std::vector<std::string_view> split_words(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const auto end = std::min(name.find_first_of(" -_/"), name.size());
    if (end > 0) words.push_back(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

// Whole words: an A10G is no A10, and a 3090 Ti is no 3090.
bool fits(const Peak& peak, const std::vector<std::string_view>& name) {
  const auto has = [&name](std::string_view word) {
    return std::find(name.begin(), name.end(), word) != name.end();
  };
  const auto wanted = split_words(peak.words);
  return std::all_of(wanted.begin(), wanted.end(), has) && !has("Ti") && !has("Laptop") &&
         !has("D");
}

double teraflops(const Peak& peak, DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return peak.bf16;
    case DType::kF16:
      return peak.fp16;
    case DType::kF32:
      return peak.fp32;
    default:
      return 0;
  }
}

const Peak* find_peak(std::string_view name) {
  const auto words = split_words(name);
  const auto* found = std::find_if(std::begin(kPeaks), std::end(kPeaks),
                                   [&words](const Peak& peak) { return fits(peak, words); });
  return found == std::end(kPeaks) ? nullptr : found;
}

}  // namespace

std::optional<double> peak_flops(std::string_view name, DType dtype) {
  const Peak* peak = find_peak(name);
  if (peak == nullptr || teraflops(*peak, dtype) == 0) return std::nullopt;
  return teraflops(*peak, dtype) * 1e12;
}

std::string describe_peak(std::string_view name, DType dtype) {
  if (name.empty() || name == "cpu") return "no MFU: CPUs have no stated peak";
  const Peak* peak = find_peak(name);
  if (peak == nullptr) return fmt::format("no MFU: '{}' is not in the table of device peaks", name);
  const double flops = teraflops(*peak, dtype);
  if (flops == 0) return fmt::format("no MFU: {} has no native {}", name, dtype_word(dtype));
  return fmt::format("MFU against {:g} TFLOP/s ({} dense, {})", flops, dtype_word(dtype), name);
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
