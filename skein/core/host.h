// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// This machine and its processes.

#include <cstdint>
#include <optional>
#include <string>

namespace skein {

std::string host_name();

// Alike for processes that share a kernel, and for no others: host names may repeat. Empty where
// the kernel does not say.
std::string boot_id();

// Alike for processes that give a process the same number, and for no others of this kernel. Empty
// where the kernel does not say.
std::string pid_namespace();

// This process and its children may open as many files as the system lets them.
void raise_file_limit();

// The letter of /proc/PID/stat: R, S, T, D, Z, …; nothing when there is no such process.
std::optional<char> process_state(int64_t pid);

}  // namespace skein
