// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Has any rank been asked to stop? The one agreement of a step, or of a batch of an evaluation.
//
// It is asked as a step begins and read at the end of the next one, so that no rank waits for it: a
// run ends at most two steps, or batches, after the request.

#include <deque>

#include "skein/comm/group.h"

namespace skein::train {

class StopAgreement {
 public:
  explicit StopAgreement(comm::Group group) : group_(std::move(group)) {}

  // Once a step or batch, on all ranks.
  void ask(bool stop, comm::Group::Site site = comm::Group::Site::current()) {
    asked_.push_back(group_.start_sum({int64_t{stop}}, site));
  }

  // What the ranks said the time before; false the first time. Alike on all ranks.
  bool answer() { return asked_.size() > 1 && take(); }

  // At the end: nothing stays under way.
  void finish() {
    while (!asked_.empty()) take();
  }

 private:
  bool take() {
    auto sum = std::move(asked_.front());
    asked_.pop_front();
    return sum.take().front() > 0;
  }

  comm::Group group_;
  std::deque<comm::HostSum<int64_t>> asked_;
};

}  // namespace skein::train
