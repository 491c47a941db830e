// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How good are the policy's answers to prompts that it does not train on? One completion of each,
// with the same draws every time.

#include <cstdint>

#include "skein/train/online/online_run.h"

namespace skein::train {

// As evaluate_step() and evaluate_first() of due_evaluation.h. Collective.
bool evaluate_held_out(OnlineRun& online, int64_t step, double epoch, bool saves);
bool evaluate_held_out_first(OnlineRun& online, int64_t step);

}  // namespace skein::train
