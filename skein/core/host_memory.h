// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much memory may this process still take?

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "skein/core/error.h"

namespace skein {

// Host memory that a run has asked for is not to be had. With less (plan/ladder.h) it may go on.
struct WantOfMemory : UserError {
  using UserError::UserError;
};

// Where the kernel tells; tests have others.
struct KernelFolders {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroups = "/sys/fs/cgroup";
};

// What the machine has.
uint64_t total_memory();

// The smallest limit of this process's cgroups, version 2 or 1; nothing if there is none.
std::optional<uint64_t> memory_limit(const KernelFolders& folders = {});

// What the machine has left, or less where a cgroup's limit leaves less. Cached files that can be
// dropped count as left. 0 when the kernel does not tell.
uint64_t available_memory(const KernelFolders& folders = {});

// For a message, where locking so many bytes was refused: the limit of locked memory
// (RLIMIT_MEMLOCK) and what to type against it. Empty where the limit allows them.
std::string memlock_advice(uint64_t bytes);

}  // namespace skein
