// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/hardware.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

namespace skein::launch {
namespace {

constexpr int kCudaSuccess = 0;
constexpr int kCudaNoDevice = 100;

int count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// /dev/nvidia0, … : the kernel driver is loaded and has found a GPU.
bool has_nvidia_device() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const auto name = entry.path().filename().string();
    if (name.size() > 6 && name.starts_with("nvidia") && std::isdigit(name[6]) != 0) return true;
  }
  return false;
}

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::string error_text(void* library, int code) {
  const auto get_name = symbol<int (*)(int, const char**)>(library, "cuGetErrorName");
  const char* name = nullptr;
  if (get_name == nullptr || get_name(code, &name) != kCudaSuccess) name = nullptr;
  return fmt::format("{} ({})", name == nullptr ? "unknown error" : name, code);
}

// Hiding all GPUs is a choice, not a problem; naming one that is not there is a problem.
bool hides_all(const char* visible) {
  return visible != nullptr && (*visible == '\0' || std::string_view(visible) == "-1");
}

void ask_driver(void* library, Hardware& hardware) {
  const auto init = symbol<int (*)(unsigned)>(library, "cuInit");
  const auto count = symbol<int (*)(int*)>(library, "cuDeviceGetCount");
  if (init == nullptr || count == nullptr) {
    hardware.gpu_problem = "libcuda.so.1 lacks cuInit";
    return;
  }
  int code = init(0);
  if (code == kCudaSuccess) code = count(&hardware.gpus);
  if (code == kCudaSuccess) return;
  hardware.gpus = 0;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (code == kCudaNoDevice && hides_all(visible)) return;
  if (!has_nvidia_device()) return;
  hardware.gpu_problem = fmt::format("cuInit fails with {}", error_text(library, code));
  if (visible != nullptr) {
    hardware.gpu_problem += fmt::format(" under CUDA_VISIBLE_DEVICES='{}'", visible);
  }
}

}  // namespace

Hardware look_at_hardware(bool ask_gpus) {
  Hardware hardware{.cores = count_cores()};
  if (!ask_gpus) return hardware;
  // Never closed: the driver keeps threads and handlers that outlive the call.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) {
    ask_driver(library, hardware);
  } else if (has_nvidia_device()) {
    hardware.gpu_problem = fmt::format("the driver's library cannot be loaded: {}", dlerror());
  }
  return hardware;
}

}  // namespace skein::launch
