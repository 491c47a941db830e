// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein config show [--origin] | check, then CONFIG and overrides as `skein train` takes them.

#include <span>
#include <string>

namespace skein::cli {

// `arguments` begins with show or check. Returns the exit code; errors propagate as exceptions.
int run_config_command(std::span<const std::string> arguments);

}  // namespace skein::cli
