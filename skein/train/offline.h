// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Trains on a fixed dataset.

#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/train/ending.h"
#include "skein/train/world.h"

namespace skein::train {

// Collective. Continues the run in its output folder, or starts it.
Outcome run_offline(const config::Resolved& resolved, const config::BatchPlan& batches,
                    World& world);

}  // namespace skein::train
