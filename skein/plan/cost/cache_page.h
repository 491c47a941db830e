// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How keys and values of texts that are being written lie in memory (model/kv_cache.h).

#include <cstdint>

namespace skein::plan {

// Of one text, in a page.
constexpr int64_t kCachePageTokens = 16;

constexpr int64_t cache_pages(int64_t tokens) {
  return (tokens + kCachePageTokens - 1) / kCachePageTokens;
}
// A head's channels as they are stored: a GPU's kernel reads them in eights.
constexpr int64_t cache_channels(int64_t head_dim) { return (head_dim + 7) / 8 * 8; }

}  // namespace skein::plan
