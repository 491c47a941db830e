// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein data: prepares the data of a run, and shows it.

#include <span>
#include <string>

namespace skein::cli {

// `arguments` without "data".
int run_data_command(std::span<const std::string> arguments);

}  // namespace skein::cli
