// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What happens when a gradient is not finite?
//
// The update was already left out on the device, on all ranks alike (they share the norm). This
// says so, with the samples and the layers, and does what nan_policy asks.

#include <cstdint>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/parallel/sharded.h"

namespace skein::train {

enum class NanVerdict { kGoOn, kRollBack };

// Collective. Throws UserError under nan_policy: stop.
NanVerdict judge(double grad_norm, config::NanPolicy policy, int64_t step,
                 const std::vector<int64_t>& samples, parallel::Sharded& sharded);

}  // namespace skein::train
