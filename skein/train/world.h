// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The ranks of this run, and this rank's place among them.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "skein/comm/group.h"
#include "skein/core/store.h"

namespace skein::train {

struct World {
  comm::Group group;
  skein::Store& store;
  at::Device device = at::kCPU;
  int local_rank = 0;
  std::string token;                     // of this start, alike on all ranks
  std::function<bool()> stop_requested;  // has somebody asked this rank to stop?

  bool is_first() const { return group.rank() == 0; }
};

}  // namespace skein::train
