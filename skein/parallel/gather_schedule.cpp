// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/gather_schedule.h"

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::parallel {

GatherSchedule::GatherSchedule(std::vector<int> blocks, GatherActions actions)
    : forward_(std::move(blocks)),
      backward_(forward_.rbegin(), forward_.rend()),
      actions_(std::move(actions)) {}

void GatherSchedule::begin() {
  pass_ = Pass::kForward;
  next_ = 0;
}

void GatherSchedule::acquire(int unit, Pass pass) {
  if (pass != pass_) turn_to(pass);
  const auto& list = pass_ == Pass::kForward ? forward_ : backward_;
  const auto found = std::find(list.begin(), list.end(), unit);
  SKEIN_CHECK(found != list.end(), "not a block of this schedule");
  if (ahead_ != unit) {
    skip_to(static_cast<size_t>(found - list.begin()));
    start_next();
  }
  ahead_ = -1;
  actions_.wait(unit);
  if (next_ < list.size()) start_next();
}

void GatherSchedule::release(int unit) { actions_.drop(unit); }

void GatherSchedule::end() {
  skip_to(forward_.size());
  pass_ = Pass::kForward;
  next_ = 0;
}

void GatherSchedule::turn_to(Pass pass) {
  skip_to(forward_.size());
  pass_ = pass;
  next_ = 0;
}

void GatherSchedule::start_next() {
  const auto& list = pass_ == Pass::kForward ? forward_ : backward_;
  ahead_ = list[next_++];
  actions_.start(ahead_);
}

// Takes part in the gathers before `position` without using them.
void GatherSchedule::skip_to(size_t position) {
  while (true) {
    if (ahead_ >= 0) {
      actions_.wait(ahead_);
      actions_.drop(std::exchange(ahead_, -1));
    }
    if (next_ >= position) return;
    start_next();
  }
}

}  // namespace skein::parallel
