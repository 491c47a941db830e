// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Commands that need tensors run in skein-worker, which lies beside this program.

#include <span>
#include <string>

namespace skein::cli {

// Added to the words of `skein-worker train` when a run is started again by itself: it goes on with
// what the first start has begun, even if that was told --fresh.
inline constexpr const char* kContinueWord = "--continue-run";

// Replaces this process. Throws IoError when there is no worker.
[[noreturn]] void exec_worker(const std::string& command, std::span<const std::string> arguments);

}  // namespace skein::cli
