// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/task_thread.h"

#include <utility>

namespace skein::optim {

TaskThread::TaskThread() : thread_([this] { work(); }) {}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t TaskThread::run(Task task) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({++last_, std::move(task)});
  not_ended_.insert(last_);
  changed_.notify_all();
  return last_;
}

bool TaskThread::has_ended(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return failure_ || !not_ended_.contains(number);
}

void TaskThread::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || !not_ended_.contains(number); });
  if (failure_) std::rethrow_exception(failure_);
}

void TaskThread::finish() {
  std::unique_lock lock(mutex_);
  const uint64_t last = last_;
  changed_.wait(lock, [&] { return failure_ || not_ended_.empty() || *not_ended_.begin() > last; });
  if (failure_) std::rethrow_exception(failure_);
}

TaskThread::Given TaskThread::take_next() {
  auto next = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->task.group != waiting_.front().task.group) break;
    if (next != waiting_.end() && next->task.place <= it->task.place) continue;
    if (!it->task.is_ready || it->task.is_ready()) next = it;
  }
  if (next == waiting_.end()) next = waiting_.begin();
  auto given = std::move(*next);
  waiting_.erase(next);
  return given;
}

void TaskThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || (!failure_ && !waiting_.empty()); });
    if (closing_) return;
    auto [number, task] = take_next();
    lock.unlock();
    std::exception_ptr failure;
    try {
      task.work();
    } catch (...) {
      failure = std::current_exception();
    }
    task = {};  // what it holds is let go before anybody hears of its end
    lock.lock();
    failure_ = failure;
    if (!failure_) not_ended_.erase(number);
    changed_.notify_all();
  }
}

}  // namespace skein::optim
