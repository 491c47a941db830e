// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace skein {

int num_threads(int64_t preprocessing_num_workers) {
  if (preprocessing_num_workers > 0) {
    return static_cast<int>(std::min<int64_t>(preprocessing_num_workers, 1024));
  }
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void for_each_index(int64_t count, int threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  int64_t failed_index = count;
  std::exception_ptr failure;
  const auto run = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (i < failed_index) {
          failed_index = i;
          failure = std::current_exception();
        }
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min<int64_t>(threads, count);
    for (int64_t i = 1; i < wanted; ++i) others.emplace_back(run);
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace skein
