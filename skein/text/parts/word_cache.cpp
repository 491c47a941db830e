// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/word_cache.h"

#include <atomic>

namespace skein::text {

WordCache& WordCache::of_this_thread() {
  thread_local WordCache cache;
  return cache;
}

uint32_t WordCache::new_owner() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

}  // namespace skein::text
