// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tokens form a sample?
//
// The token stream is cut into blocks of `block_size` tokens; a block is a sample and its number
// is the sample's id. The last block keeps what is left and may be short; a single left-over token
// predicts nothing and is dropped. A block of n tokens has n - 1 targets, all inside the block.

#include <cstdint>

namespace skein::data {

struct Block {
  int64_t begin = 0;
  int64_t length = 0;  // at least 2

  int64_t num_targets() const { return length - 1; }
};

class Blocks {
 public:
  // Throws UserError when block_size is below 2.
  Blocks(int64_t num_tokens, int64_t block_size);

  int64_t count() const { return count_; }
  // Requires 0 <= sample < count().
  Block block(int64_t sample) const;

 private:
  int64_t num_tokens_;
  int64_t block_size_;
  int64_t count_;
};

}  // namespace skein::data
