// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein plan [CONFIG.yaml] [key=value …] [launch flags] [--json]: what would `skein train` do?

#include <span>
#include <string>

namespace skein::cli {

// Returns the exit code; errors propagate as exceptions.
int run_plan_command(std::span<const std::string> arguments);

}  // namespace skein::cli
