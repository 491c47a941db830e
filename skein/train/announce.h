// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a run tells people when it begins: the banner, the progress line, the reporters.

#include <cstdint>

#include "skein/train/session.h"

namespace skein::train {

// The run begins after `step` finished updates. Collective; the first rank speaks.
void announce(Session& run, int64_t step);

}  // namespace skein::train
