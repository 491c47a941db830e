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

uint64_t TaskThread::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return ++given_;
}

bool TaskThread::has_ended(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return failure_ || ended_ >= number;
}

void TaskThread::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || ended_ >= number; });
  if (failure_) std::rethrow_exception(failure_);
}

void TaskThread::finish() {
  uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = given_;
  }
  wait(last);
}

void TaskThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || (!failure_ && !tasks_.empty()); });
    if (closing_) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    task = nullptr;  // what it holds is let go before anybody hears of its end
    lock.lock();
    failure_ = failure;
    if (!failure_) ++ended_;
    changed_.notify_all();
  }
}

}  // namespace skein::optim
