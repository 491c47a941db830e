// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A thread that runs tasks one after the other, beside the thread that gives them: groups in the
// order in which they were given, of a group what is needed first.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <thread>

namespace skein::optim {

struct Task {
  std::function<void()> work;
  uint64_t group = 0;                // never less than that of the task before it
  size_t place = 0;                  // in the group: the lowest of those that are ready goes first
  std::function<bool()> is_ready{};  // empty: it is. Where none is, the oldest waits for itself
};

class TaskThread {
 public:
  TaskThread();
  // Waits for the task that is running; those behind it are left out.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Returns the task's number; they count from 1. After a task has thrown, none is run any more.
  uint64_t run(Task task);
  // Has the task ended?
  bool has_ended(uint64_t number) const;
  // Waits for its end; throws what a task has thrown.
  void wait(uint64_t number);
  // Waits for all that were given so far.
  void finish();

 private:
  struct Given {
    uint64_t number;
    Task task;
  };
  void work();
  Given take_next();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Given> waiting_;        // in the order in which they were given
  std::set<uint64_t> not_ended_{};  // those, and the one that runs
  uint64_t last_ = 0;
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::optim
