// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "skein/cli/rank_run.h"
#include "skein/comm/group.h"
#include "skein/core/error.h"
#include "skein/core/file.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;

// The CUDA runtime and NCCL are among the libraries that LibTorch has loaded, or they are not.
template <typename Function>
Function loaded(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

// 13010 is CUDA 13.1.
Json cuda_version(const char* function) {
  const auto ask = loaded<int (*)(int*)>(function);
  int version = 0;
  if (ask == nullptr || ask(&version) != 0 || version == 0) return nullptr;
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// 22809 is NCCL 2.28.9.
Json nccl_version() {
  const auto ask = loaded<int (*)(int*)>("ncclGetVersion");
  int version = 0;
  if (ask == nullptr || ask(&version) != 0) return nullptr;
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int count_gpus() {
  const auto ask = loaded<int (*)(int*)>("cudaGetDeviceCount");
  int count = 0;
  return ask != nullptr && ask(&count) == 0 ? count : 0;
}

Json describe_gpu(void* driver, int index) {
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  const auto memory =
      reinterpret_cast<int (*)(size_t*, int)>(::dlsym(driver, "cuDeviceTotalMem_v2"));
  const auto attribute =
      reinterpret_cast<int (*)(int*, int, int)>(::dlsym(driver, "cuDeviceGetAttribute"));
  if (get == nullptr || name == nullptr || memory == nullptr || attribute == nullptr)
    return nullptr;
  constexpr int kMajor = 75;
  constexpr int kMinor = 76;
  int device = 0;
  char text[128] = {};
  size_t bytes = 0;
  int major = 0;
  int minor = 0;
  const bool known = get(&device, index) == 0 && name(text, sizeof text, device) == 0 &&
                     memory(&bytes, device) == 0 && attribute(&major, kMajor, device) == 0 &&
                     attribute(&minor, kMinor, device) == 0;
  if (!known) return nullptr;
  return {{"name", text}, {"bytes", bytes}, {"capability", fmt::format("{}.{}", major, minor)}};
}

// Pairs that cannot read each other's memory directly.
Json find_apart(int gpus) {
  const auto ask = loaded<int (*)(int*, int, int)>("cudaDeviceCanAccessPeer");
  Json apart = Json::array();
  if (ask == nullptr) return apart;
  for (int one = 0; one < gpus; ++one) {
    for (int other = 0; other < gpus; ++other) {
      int can = 0;
      if (one == other || (ask(&can, one, other) == 0 && can != 0)) continue;
      apart.push_back({one, other});
    }
  }
  return apart;
}

double reduce_once(comm::Group& group, at::Tensor& values) {
  values.fill_(static_cast<float>(group.rank() + 1));
  group.barrier();
  const auto begin = std::chrono::steady_clock::now();
  auto work = group.all_reduce(values);
  group.finish(work);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const auto expected = 0.5F * static_cast<float>(group.size() * (group.size() + 1));
  const bool right = values.eq(expected).all().item<bool>();
  if (!right) throw CommError("the sum of an all-reduce is wrong: memory or network corrupts data");
  return seconds.count();
}

Json measure(comm::Group& group, const at::Device& device) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr int kTimes = 5;
  auto values = at::empty({kBytes / 4}, at::TensorOptions().dtype(at::kFloat).device(device));
  reduce_once(group, values);  // connections are made on the first use
  std::vector<double> seconds;
  for (int i = 0; i < kTimes; ++i) seconds.push_back(reduce_once(group, values));
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[kTimes / 2];
  // What each rank sends, whatever the algorithm: 2 (n - 1) / n of the payload.
  const double sent = 2.0 * (group.size() - 1) / group.size() * static_cast<double>(kBytes);
  return {{"ranks", group.size()},
          {"device", device.is_cuda() ? "cuda" : "cpu"},
          {"bytes", kBytes},
          {"milliseconds", median * 1e3},
          {"gigabytes_per_second", sent / median / 1e9}};
}

}  // namespace

int run_doctor_facts(std::span<const std::string> arguments) {
  const bool ask_driver = arguments.empty();
  const int gpus = ask_driver ? count_gpus() : 0;
  void* driver = gpus > 0 ? ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : nullptr;
  Json list = Json::array();
  for (int i = 0; driver != nullptr && i < gpus; ++i) list.push_back(describe_gpu(driver, i));
  const Json facts = {{"libtorch", TORCH_VERSION},
                      {"cuda_runtime", cuda_version("cudaRuntimeGetVersion")},
                      {"cuda_driver", ask_driver ? cuda_version("cudaDriverGetVersion") : Json()},
                      {"nccl", nccl_version()},
                      {"gpus", list},
                      {"no_peer_access", find_apart(gpus)}};
  fmt::print("{}\n", facts.dump());
  return 0;
}

int run_doctor_rank(std::span<const std::string> arguments) {
  if (arguments.size() != 1) throw UserError("doctor-rank is started by `skein doctor`");
  return run_rank({.body = [&](const config::Resolved&, train::World& world) {
    const auto result = measure(world.group, world.device);
    if (world.is_first()) write_file_atomically(arguments[0], result.dump());
    return 0;
  }});
}

}  // namespace skein::cli
