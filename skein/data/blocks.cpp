// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::data {

Blocks::Blocks(int64_t num_tokens, int64_t block_size)
    : num_tokens_(num_tokens), block_size_(block_size) {
  if (block_size < 2) {
    throw UserError(fmt::format(
        "block_size: {} leaves nothing to predict; a block needs at least 2 tokens", block_size));
  }
  count_ = num_tokens / block_size + (num_tokens % block_size >= 2 ? 1 : 0);
}

Block Blocks::block(int64_t sample) const {
  SKEIN_CHECK(0 <= sample && sample < count_, fmt::format("sample {} of {}", sample, count_));
  const int64_t begin = sample * block_size_;
  return {.begin = begin, .length = std::min(block_size_, num_tokens_ - begin)};
}

}  // namespace skein::data
