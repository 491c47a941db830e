// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Runs a function for many indices on several threads.

#include <cstdint>
#include <functional>

namespace skein {

// preprocessing_num_workers as a number of threads: 0 means all cores of this process.
int num_threads(int64_t preprocessing_num_workers);

// work(i) for every i in [0, count), in any order, on up to `threads` threads; this thread is one
// of them. After an exception no further index is started; that of the lowest index is thrown.
void for_each_index(int64_t count, int threads, const std::function<void(int64_t)>& work);

}  // namespace skein
