// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Samples for pre-training: the blocks of a token stream (see blocks.h). A position predicts the
// token after it, and the last of a block nothing.

#include "skein/data/blocks.h"
#include "skein/data/sample_source.h"
#include "skein/data/token_array.h"

namespace skein::data {

class BlockSource final : public SampleSource {
 public:
  // Throws UserError when block_size is below 2. `tokens` must outlive this object.
  BlockSource(const TokenArray& tokens, int64_t block_size)
      : tokens_(tokens), blocks_(tokens.size(), block_size) {}

  int64_t count() const override { return blocks_.count(); }
  int64_t length(int64_t sample) const override { return blocks_.block(sample).length; }
  int64_t num_targets(int64_t sample) const override { return blocks_.block(sample).num_targets(); }
  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const override;

 private:
  const TokenArray& tokens_;
  Blocks blocks_;
};

}  // namespace skein::data
