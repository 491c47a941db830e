// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein eval MODEL --dataset F [launch flags]: starts the ranks that find a model's loss.

#include <span>
#include <string>

namespace skein::cli {

int run_eval_command(std::span<const std::string> arguments);

}  // namespace skein::cli
