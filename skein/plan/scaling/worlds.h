// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Into worlds of which sizes can the ranks of a launch be divided, so that all of them are at work?

#include <cstdint>
#include <span>
#include <vector>

#include "skein/plan/scaling/step_time.h"

namespace skein::plan {

// Of so many ranks each, on one node or on whole ones, smallest first.
std::vector<WorldShape> worlds_within(const WorldShape& launch);
// Those of them that are asked for, each once; all where none is. Throws UserError.
std::vector<WorldShape> worlds_within(const WorldShape& launch, std::span<const int64_t> asked);

}  // namespace skein::plan
