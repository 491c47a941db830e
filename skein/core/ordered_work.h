// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do several threads work on what comes in order, so that results come in the same order?
//
// Workers take items one at a time and work on them at the same time; one reader gets the results
// in the items' order. Only a few items per worker are under way.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace skein {

template <typename Item, typename Result>
class OrderedWork {
 public:
  // Called by one worker at a time; absent: there are no more.
  using Take = std::function<std::optional<Item>()>;
  // Called by many at a time.
  using Work = std::function<Result(Item&&)>;

  OrderedWork(Take take, Work work, int threads)
      : take_(std::move(take)), work_(std::move(work)), ahead_(kItemsPerWorker * threads) {
    for (int i = 0; i < threads; ++i) {
      try {
        workers_.emplace_back([this] { run(); });
      } catch (const std::system_error&) {
        if (workers_.empty()) throw;
        break;  // no further threads to be had: fewer do
      }
    }
  }
  ~OrderedWork() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // The next result in order; absent after the last. Throws what taking or working threw.
  std::optional<Result> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(read_) || (ended_ && read_ == issued_); });
    const auto found = done_.find(read_);
    if (found == done_.end()) return std::nullopt;
    auto done = std::move(found->second);
    done_.erase(found);
    ++read_;
    changed_.notify_all();
    if (done.failure) std::rethrow_exception(done.failure);
    return std::move(done.result);
  }

 private:
  static constexpr int64_t kItemsPerWorker = 3;

  struct Done {
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || issued_ - read_ < ahead_; });
      if (ended_) return;
      const int64_t number = issued_++;
      Done done;
      try {
        auto item = take_();
        if (!item) {
          --issued_;
          ended_ = true;
          changed_.notify_all();
          return;
        }
        lock.unlock();
        done.result = work_(std::move(*item));
      } catch (...) {
        done.failure = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      ended_ = ended_ || done.failure;
      done_.emplace(number, std::move(done));
      changed_.notify_all();
    }
  }

  Take take_;
  Work work_;
  int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Done> done_;
  int64_t issued_ = 0, read_ = 0;
  bool ended_ = false;  // no further item is taken
  std::vector<std::jthread> workers_;
};

}  // namespace skein
