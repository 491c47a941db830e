// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein checkpoint list DIR [--full] [--json] | verify DIR [--json]

#include <span>
#include <string>

namespace skein::cli {

// Returns the exit code; a damaged checkpoint ends `verify` with an IoError, after its report.
int run_checkpoint_command(std::span<const std::string> arguments);

}  // namespace skein::cli
