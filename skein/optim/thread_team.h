// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Threads that stay, for loops of a few milliseconds: starting threads would cost a fifth of each.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace skein::optim {

// One thread at a time calls it, and takes part.
class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  // work(i) for every i in [0, count), in any order. It must not throw.
  void for_each_index(int64_t count, const std::function<void(int64_t)>& work);

 private:
  void take_part();
  void wait_for_work();

  const std::function<void(int64_t)>* work_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_ = 0;
  std::atomic<uint32_t> round_ = 0;    // grows with every loop, and at the end
  std::atomic<uint32_t> working_ = 0;  // threads that have not left this round
  bool closing_ = false;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace skein::optim
