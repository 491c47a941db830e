// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which blocks does backward run through?
//
// Those that train, or stand behind something that trains in the order of forward. The others run
// forward alone and keep nothing. A frozen block behind a trainable embedding is run through: its
// inputs' gradients are the embedding's. Behind a frozen one it is not, also where the end of the
// same (tied) unit trains.

#include <vector>

#include "skein/plan/families/shapes.h"

namespace skein::plan {

// By unit; meant for blocks.
std::vector<bool> reached_units(const Shapes& shapes);

}  // namespace skein::plan
