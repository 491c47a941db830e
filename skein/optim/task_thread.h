// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A thread that runs tasks one after the other, in the order in which they were given, beside the
// thread that gives them.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace skein::optim {

class TaskThread {
 public:
  TaskThread();
  // Waits for the task that is running; those behind it are left out.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Returns the task's number; they count from 1. After a task has thrown, none is run any more.
  uint64_t run(std::function<void()> task);
  // Has the task ended?
  bool has_ended(uint64_t number) const;
  // Waits for its end, and so for all before it; throws what a task has thrown.
  void wait(uint64_t number);
  // Waits for all that were given so far.
  void finish();

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t given_ = 0, ended_ = 0;
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::optim
