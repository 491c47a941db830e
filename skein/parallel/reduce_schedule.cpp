// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/reduce_schedule.h"

#include <algorithm>
#include <utility>

namespace skein::parallel {

ReduceSchedule::ReduceSchedule(std::vector<int> order, ReduceActions actions)
    : order_(std::move(order)), actions_(std::move(actions)), done_(order_.size(), false) {}

void ReduceSchedule::begin() {
  std::fill(done_.begin(), done_.end(), false);
  next_ = 0;
}

void ReduceSchedule::done(int unit) {
  const auto found = std::find(order_.begin(), order_.end(), unit);
  if (found == order_.end()) return;
  done_[found - order_.begin()] = true;
  while (next_ < order_.size() && done_[next_]) start_next();
}

void ReduceSchedule::end() {
  while (next_ < order_.size()) start_next();
  if (under_way_ >= 0) actions_.finish(std::exchange(under_way_, -1));
}

void ReduceSchedule::start_next() {
  if (under_way_ >= 0) actions_.finish(std::exchange(under_way_, -1));
  under_way_ = order_[next_++];
  actions_.start(under_way_);
}

}  // namespace skein::parallel
