// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/thread_team.h"

namespace skein::optim {

ThreadTeam::ThreadTeam(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { wait_for_work(); });
}

ThreadTeam::~ThreadTeam() {
  closing_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadTeam::for_each_index(int64_t count, const std::function<void(int64_t)>& work) {
  work_ = &work;
  count_ = count;
  next_ = 0;
  working_ = static_cast<uint32_t>(threads_.size());
  round_.fetch_add(1);
  round_.notify_all();
  take_part();
  for (auto left = working_.load(); left != 0; left = working_.load()) working_.wait(left);
}

void ThreadTeam::take_part() {
  for (auto i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) (*work_)(i);
}

void ThreadTeam::wait_for_work() {
  for (uint32_t seen = 0;;) {
    round_.wait(seen);
    ++seen;
    if (closing_) return;
    take_part();
    if (working_.fetch_sub(1) == 1) working_.notify_one();
  }
}

}  // namespace skein::optim
