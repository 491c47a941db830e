// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A rank that misbehaves on purpose.

#include <string>

#include "skein/core/file.h"

namespace skein::ranks {

// Joins the others as a rank of `skein train` does, makes a few collectives, then does what the
// scenario asks of rank 1:
//   op, size, dtype   another collective than the others
//   late              does not come to the next collective
//   late-agreement    the same, and the others have a host sum under way and compute on
//   sigstop-self      stops its own process
//   never-joins       lives, but does not join
// Writes the time of the deed (CLOCK_MONOTONIC, milliseconds) to FOLDER/deed. Returns the exit
// code.
int run_bad_rank(const std::string& scenario, const fs::path& folder);

}  // namespace skein::ranks
