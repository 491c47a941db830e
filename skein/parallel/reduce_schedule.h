// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// In which order do units' gradients travel?
//
// One static list that all ranks share: blocks in the order in which backward leaves them, then the
// root units. A unit starts when it is done and all before it have started; one that backward never
// reached on this rank is started at the end, in its place, and contributes zeros. At most one is
// under way while the next is being filled.

#include <functional>
#include <vector>

namespace skein::parallel {

struct ReduceActions {
  std::function<void(int unit)> start;
  std::function<void(int unit)> finish;
};

class ReduceSchedule {
 public:
  ReduceSchedule(std::vector<int> order, ReduceActions actions);

  void begin();
  void done(int unit);  // its gradient is complete for this micro-batch
  void end();           // starts what is left, finishes all

 private:
  void start_next();

  std::vector<int> order_;
  ReduceActions actions_;
  std::vector<bool> done_;  // by position
  size_t next_ = 0;
  int under_way_ = -1;
};

}  // namespace skein::parallel
