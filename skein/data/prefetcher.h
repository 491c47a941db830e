// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is the next step's data ready before it is asked for?
//
// One thread makes the values of the steps that follow, up to `depth` of them. Whatever is asked
// for, the answer is make(step): a step out of turn throws the prepared ones away and starts
// there. The thread starts with the first question and ends with the object.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace skein::data {

template <typename Value>
class Prefetcher {
 public:
  using Make = std::function<Value(int64_t step)>;

  // `make` is called by the thread alone; what it refers to must outlive this object.
  Prefetcher(Make make, int64_t depth) : make_(std::move(make)), depth_(depth) {}

  // Throws what make(step) threw. Not thread-safe.
  Value get(int64_t step) {
    std::unique_lock lock(mutex_);
    if (step != next_ || stopped_) seek(step);
    if (!thread_.joinable())
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    changed_.wait(lock, [&] { return !ready_.empty(); });
    auto entry = std::move(ready_.front());
    ready_.pop_front();
    ++next_;
    changed_.notify_all();
    if (entry.failure) std::rethrow_exception(entry.failure);
    return std::move(*entry.value);
  }

 private:
  struct Entry {
    std::optional<Value> value;
    std::exception_ptr failure;
  };

  void seek(int64_t step) {
    ready_.clear();
    next_ = step;
    stopped_ = false;
    ++seeks_;
    changed_.notify_all();
  }

  Entry make_entry(int64_t step) const {
    try {
      return {.value = make_(step), .failure = nullptr};
    } catch (...) {
      return {.value = std::nullopt, .failure = std::current_exception()};
    }
  }

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto has_work = [&] { return !stopped_ && static_cast<int64_t>(ready_.size()) < depth_; };
    while (changed_.wait(lock, stop, has_work) && !stop.stop_requested()) {
      const int64_t step = next_ + static_cast<int64_t>(ready_.size()), seeks = seeks_;
      lock.unlock();
      auto entry = make_entry(step);
      lock.lock();
      if (seeks != seeks_) continue;  // nobody wants it any more
      stopped_ = entry.failure != nullptr;
      ready_.push_back(std::move(entry));
      changed_.notify_all();
    }
  }

  Make make_;
  int64_t depth_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Entry> ready_;
  int64_t next_ = 0;      // the step of ready_'s first, or the one that is awaited
  int64_t seeks_ = 0;     // tells a value that was begun before a seek
  bool stopped_ = false;  // the last of ready_ is a failure
  std::jthread thread_;   // last: it ends before what it uses
};

}  // namespace skein::data
