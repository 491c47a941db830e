// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Trains on what the policy itself says: prompts, rollout, rewards, advantages, updates.

#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/train/offline.h"
#include "skein/train/world.h"

namespace skein::train {

// Collective. Continues the run in its output folder, or starts it. Requires an online stage.
Outcome run_online(const config::Resolved& resolved, const config::BatchPlan& batches,
                   World& world);

}  // namespace skein::train
