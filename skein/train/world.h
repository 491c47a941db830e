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
  int local_size = 1;                    // ranks of this node
  bool own_output = false;               // save_on_each_node: each node has an output_dir
  bool starts_over = false;              // the command says --fresh; a restart goes on all the same
  // For want of memory (plan/ladder.h): what this start does without, and whether less is tried.
  std::string given_up = {};
  bool may_give_up = false;
  // Throws CommError when output_dir is another run's by now. Empty: this rank commits nothing.
  std::function<void()> fence = {};

  bool is_first() const { return group.rank() == 0; }
  // This rank's place among those that share its output_dir; the first makes and commits files.
  int output_rank() const { return own_output ? local_rank : group.rank(); }
  int output_size() const { return own_output ? local_size : group.size(); }
  bool leads_output() const { return output_rank() == 0; }
};

}  // namespace skein::train
