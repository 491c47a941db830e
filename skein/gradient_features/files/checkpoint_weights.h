// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much does each checkpoint of a run count? As much as its steps moved the weights.

#include <vector>

#include "skein/core/file.h"

namespace skein::gradient_features {

// For each folder, with a trainer_state.json as skein and transformers write it: the mean of the
// learning rates that were logged since the checkpoint before it, of those given, by step.
// Throws UserError when a folder has none, or nothing was logged in between.
std::vector<double> mean_learning_rates(const std::vector<fs::path>& checkpoints);

}  // namespace skein::gradient_features
