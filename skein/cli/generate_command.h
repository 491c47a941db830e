// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein generate MODEL --prompt TEXT [flags]

#include <span>
#include <string>

namespace skein::cli {

// Returns the exit code. Runs in skein-worker.
int run_generate_command(std::span<const std::string> arguments);

}  // namespace skein::cli
