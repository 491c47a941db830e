// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Commands that need tensors run in skein-worker, which lies beside this program.

#include <filesystem>
#include <span>
#include <string>

namespace skein::cli {

// It links LibTorch and lies beside this program.
std::filesystem::path worker_path();

// Replaces this process. Throws IoError when there is no worker.
[[noreturn]] void exec_worker(const std::string& command, std::span<const std::string> arguments);

}  // namespace skein::cli
