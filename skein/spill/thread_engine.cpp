// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "skein/core/file_system.h"
#include "skein/spill/engine.h"

namespace skein::spill {
namespace {

class ThreadEngine final : public Engine {
 public:
  ThreadEngine(int descriptor, unsigned threads) : descriptor_(descriptor) {
    for (unsigned i = 0; i < threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    }
  }

  void start(Transfer& transfer) override {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(&transfer);
    has_work_.notify_one();
  }

  void finish(Transfer& transfer) override {
    std::unique_lock lock(mutex_);
    has_finished_.wait(lock, [&] { return transfer.done; });
  }

 private:
  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (has_work_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      auto& transfer = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      carry(transfer);
      lock.lock();
      transfer.done = true;
      has_finished_.notify_all();
    }
  }

  void carry(Transfer& transfer) const {
    int64_t result = 0;
    do {
      const auto rest = transfer.rest();
      result = transfer.kind == Transfer::Kind::kRead
                   ? file_system().read(descriptor_, rest, transfer.rest_offset())
                   : file_system().write(descriptor_, rest, transfer.rest_offset());
      if (result < 0) result = -errno;
    } while (transfer.take(result));
  }

  const int descriptor_;
  std::mutex mutex_;  // of all below, and of `done`
  std::condition_variable_any has_work_;
  std::condition_variable has_finished_;
  std::deque<Transfer*> waiting_;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace

std::unique_ptr<Engine> make_thread_engine(int descriptor, unsigned threads) {
  return std::make_unique<ThreadEngine>(descriptor, threads);
}

}  // namespace skein::spill
