// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// When are a block's parameters gathered, and when may their memory go? (stage 3)
//
// All ranks follow one static list per pass: forward the blocks in order, backward in reverse. A
// gather is started when its unit's predecessor is first used, so that at most two blocks are whole
// at once. A block that this rank does not use is still gathered in its turn, for the others' sake.
// Pure bookkeeping: what "start" and "drop" do is the owner's.

#include <functional>
#include <vector>

#include "skein/tensor/units.h"

namespace skein::parallel {

struct GatherActions {
  std::function<void(int unit)> start;  // issue the collective
  std::function<void(int unit)> wait;   // parameters usable afterwards
  std::function<void(int unit)> drop;   // free them
};

class GatherSchedule {
 public:
  using Pass = tensor::Units::Pass;

  GatherSchedule(std::vector<int> blocks, GatherActions actions);

  void begin();  // a micro-batch starts
  void acquire(int unit, Pass pass);
  void release(int unit);
  void end();  // the micro-batch is over on this rank: catch up with the list

 private:
  void turn_to(Pass pass);
  void start_next();
  void skip_to(size_t position);

  std::vector<int> forward_, backward_;
  GatherActions actions_;
  Pass pass_ = Pass::kForward;
  size_t next_ = 0;  // first entry of the pass's list that was not started
  int ahead_ = -1;   // started, but not yet used
};

}  // namespace skein::parallel
