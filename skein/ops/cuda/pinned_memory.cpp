// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/pinned_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "skein/core/amounts.h"
#include "skein/core/host_memory.h"

namespace skein::ops {
namespace {

// NVIDIA's driver for Linux does not count what it pins as locked memory; another one may.
[[noreturn]] void refuse(int64_t bytes, const char* why) {
  const auto size = static_cast<uint64_t>(bytes);
  const auto limit = memlock_advice(size);
  throw WantOfMemory(fmt::format(
      "cannot lock {} ({} bytes) of host memory for offload: {}. {}Free memory, offload less "
      "(offload_ratio), or give offload_pin_memory=false, which is slower",
      shown_bytes(size), size, why, limit.empty() ? "" : "If it is the limit: " + limit + ". "));
}

}  // namespace

at::Tensor pinned_memory(int64_t bytes) {
  const auto options = at::TensorOptions(at::kCPU).dtype(at::kByte);
  const auto size = static_cast<size_t>(bytes);
  if (size == 0) return at::from_blob(nullptr, {0}, options);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) refuse(bytes, std::strerror(errno));
  ::madvise(memory, size, MADV_HUGEPAGE);
  auto tensor = at::from_blob(
      memory, {bytes},
      [size](void* address) {
        C10_CUDA_IGNORE_ERROR(cudaHostUnregister(address));
        ::munmap(address, size);
      },
      options);
  tensor.zero_();  // by many threads: registering would touch the pages one after the other
  const auto status = cudaHostRegister(memory, size, cudaHostRegisterPortable);
  if (status == cudaSuccess) return tensor;
  cudaGetLastError();  // or the next call would be told
  refuse(bytes, cudaGetErrorString(status));
}

}  // namespace skein::ops
