// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One rank of `skein eval`, in skein-worker.

#include <span>
#include <string>

namespace skein::cli {

int run_eval_rank(std::span<const std::string> arguments);

}  // namespace skein::cli
