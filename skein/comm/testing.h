// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests alone: ranks that are threads of one process, over a backend that processes use.

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "skein/comm/group.h"
#include "skein/core/store.h"

namespace skein::comm {

// Connects the ranks over one store, as processes would be.
inline void run_connected(GroupOptions options, const std::function<void(Group&)>& body) {
  const int local_size = options.local_size;
  MemoryStore store;
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (options.rank = 0; options.rank < options.size; ++options.rank) {
    options.local_rank = options.rank % local_size;
    threads.emplace_back([&, options] {
      try {
        auto group = connect(options, store);
        body(group);
        group.shutdown();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace skein::comm
