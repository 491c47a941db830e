// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein train [CONFIG.yaml] [key=value …] [launch flags]: checks everything that needs no tensor,
// then starts the ranks.

#include <span>
#include <string>

namespace skein::cli {

// Returns the exit code of the run; errors before the first rank propagate as exceptions.
int run_train_command(std::span<const std::string> arguments);

}  // namespace skein::cli
