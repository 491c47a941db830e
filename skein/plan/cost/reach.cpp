// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/cost/reach.h"

namespace skein::plan {

std::vector<bool> reached_units(const Shapes& shapes) {
  std::vector<bool> reached(shapes.units.size(), false);
  bool trains = false;  // something so far
  for (const auto& parameter : shapes.parameters) {
    trains = trains || parameter.trainable;
    if (trains) reached[static_cast<size_t>(parameter.unit)] = true;
  }
  return reached;
}

}  // namespace skein::plan
