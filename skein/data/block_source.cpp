// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/block_source.h"

#include <algorithm>

#include "skein/core/error.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {

void BlockSource::read(int64_t sample, std::span<int64_t> tokens,
                       std::span<int64_t> targets) const {
  const auto block = blocks_.block(sample);
  SKEIN_CHECK(std::ssize(tokens) == block.length && std::ssize(targets) == block.length,
              "a sample is read as a whole");
  tokens_.copy(block.begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  targets.back() = tensor::kIgnore;
}

}  // namespace skein::data
