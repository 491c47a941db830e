// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include "skein/core/error.h"

namespace skein {

// Host memory that a run has asked for is not to be had. With less (plan/ladder.h) it may go on.
struct WantOfMemory : UserError {
  using UserError::UserError;
};

}  // namespace skein
