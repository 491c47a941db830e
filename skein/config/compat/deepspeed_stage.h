// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Keys of a DeepSpeed file that contradict its ZeRO stage.

#include <span>

#include "skein/config/syntax/node.h"

namespace skein::config {

// Throws UserError for a key of stage 3 at a lower one, and for offload that the stage cannot do.
// DeepSpeed itself leaves most of them out in silence.
void check_deepspeed_stage(std::span<const Setting> leaves);

}  // namespace skein::config
