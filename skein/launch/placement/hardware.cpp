// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/hardware.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/launch/placement/numa.h"

namespace skein::launch {
namespace {

constexpr int kCudaSuccess = 0;
constexpr int kCudaNoDevice = 100;
constexpr std::chrono::seconds kDriverLimit(60);

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

uint64_t smallest_memory(void* library, int gpus) {
  const auto get = symbol<int (*)(int*, int)>(library, "cuDeviceGet");
  const auto total = symbol<int (*)(size_t*, int)>(library, "cuDeviceTotalMem_v2");
  uint64_t smallest = 0;
  for (int i = 0; i < gpus && get != nullptr && total != nullptr; ++i) {
    int device = 0;
    size_t bytes = 0;
    if (get(&device, i) != kCudaSuccess || total(&bytes, device) != kCudaSuccess) return 0;
    smallest = i == 0 ? bytes : std::min<uint64_t>(smallest, bytes);
  }
  return smallest;
}

// What cannot be asked is taken for a GPU of today.
bool all_have_bfloat16(void* library, int gpus) {
  constexpr int kMajorCapability = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  const auto get = symbol<int (*)(int*, int)>(library, "cuDeviceGet");
  const auto ask = symbol<int (*)(int*, int, int)>(library, "cuDeviceGetAttribute");
  if (get == nullptr || ask == nullptr) return true;
  for (int i = 0; i < gpus; ++i) {
    int device = 0, major = 0;
    if (get(&device, i) != kCudaSuccess) continue;
    if (ask(&major, kMajorCapability, device) == kCudaSuccess && major < 8) return false;
  }
  return true;
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
  if (code == kCudaSuccess) {
    hardware.gpu_memory = smallest_memory(library, hardware.gpus);
    hardware.gpus_have_bfloat16 = all_have_bfloat16(library, hardware.gpus);
    return;
  }
  hardware.gpus = 0;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (code == kCudaNoDevice && hides_all(visible)) return;
  if (!has_nvidia_device()) return;
  hardware.gpu_problem = fmt::format("cuInit fails with {}", error_text(library, code));
  if (visible != nullptr) {
    hardware.gpu_problem += fmt::format(" under CUDA_VISIBLE_DEVICES='{}'", visible);
  }
}

void ask_gpus_here(Hardware& hardware) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) {
    ask_driver(library, hardware);
  } else if (has_nvidia_device()) {
    hardware.gpu_problem = fmt::format("the driver's library cannot be loaded: {}", dlerror());
  }
}

// What the child writes until it ends; nothing if it does not end in time.
std::optional<std::string> read_until(int descriptor, std::chrono::steady_clock::time_point limit) {
  std::string answer;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char buffer[512];
    const auto count = ::read(descriptor, buffer, sizeof buffer);
    if (count <= 0) return answer;
    answer.append(buffer, static_cast<size_t>(count));
  }
}

// The driver starts threads of its own, which would take the signals that a launcher waits for: a
// child asks, and its threads end with it.
void ask_in_child(Hardware& hardware) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  const pid_t child = ::fork();
  if (child < 0) throw_errno("cannot fork");
  if (child == 0) {
    ask_gpus_here(hardware);
    const auto answer = fmt::format("{} {} {:d} {}", hardware.gpus, hardware.gpu_memory,
                                    hardware.gpus_have_bfloat16, hardware.gpu_problem);
    const bool written = ::write(ends[1], answer.data(), answer.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  const File reading(ends[0]);
  const auto answer = read_until(ends[0], std::chrono::steady_clock::now() + kDriverLimit);
  int status = 0;
  if (!answer) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, WNOHANG);  // a process stuck in the driver cannot be waited for
    hardware.gpu_problem = fmt::format(
        "the driver has not answered for {} s (does `nvidia-smi` answer?)", kDriverLimit.count());
    return;
  }
  ::waitpid(child, &status, 0);
  if (status != 0 || answer->empty()) {
    hardware.gpu_problem = "the driver crashed when it was asked for GPUs";
    return;
  }
  std::istringstream words(*answer);
  words >> hardware.gpus >> hardware.gpu_memory >> hardware.gpus_have_bfloat16 >> std::ws;
  std::getline(words, hardware.gpu_problem, '\0');
}

}  // namespace

Hardware look_at_hardware(bool ask_gpus) {
  Hardware hardware;
  hardware.cores = count_cores();
  hardware.count_numa_nodes = [] { return Topology().count_numa_nodes(); };
  if (ask_gpus) ask_in_child(hardware);
  return hardware;
}

}  // namespace skein::launch
