// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// `skein doctor`: what does this machine offer a run, and what would stop one?

#include <span>
#include <string>

namespace skein::cli {

// 0, or 2 when there is a problem.
int run_doctor_command(std::span<const std::string> arguments);

}  // namespace skein::cli
