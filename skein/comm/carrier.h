// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Runs tasks in order on a thread of its own.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "skein/core/error.h"

namespace skein::comm {

class Carrier {
 public:
  Carrier() : thread_([this] { run(); }) {}
  ~Carrier() { stop(); }
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // What the task throws, the future gives.
  std::shared_future<void> enqueue(std::function<void()> task) {
    std::packaged_task<void()> packaged(std::move(task));
    auto future = packaged.get_future().share();
    const std::lock_guard lock(mutex_);
    SKEIN_CHECK(!stopping_, "a collective was issued after the group's shutdown");
    tasks_.push_back(std::move(packaged));
    changed_.notify_one();
    return future;
  }

  // Finishes what was enqueued, then ends the thread.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (auto task = next()) (*task)();
  }

  std::optional<std::packaged_task<void()>> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return std::nullopt;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::comm
