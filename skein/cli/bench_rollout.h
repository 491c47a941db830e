// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// `skein bench rollout`: how fast does a model answer?

#include <span>
#include <string>

namespace skein::cli {

extern const char* const kRolloutUsage;

int bench_rollout(std::span<const std::string> arguments);

}  // namespace skein::cli
