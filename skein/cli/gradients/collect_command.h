// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <span>
#include <string>

namespace skein::cli {

// `skein gradients collect`: starts ranks, as train does. In skein.
int run_collect_command(std::span<const std::string> arguments);

}  // namespace skein::cli
