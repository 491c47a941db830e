// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein bench train MODEL: one rank, synthetic tokens, the median step. Runs in skein-worker.

#include <span>
#include <string>

namespace skein::cli {

int run_bench_command(std::span<const std::string> arguments);

}  // namespace skein::cli
