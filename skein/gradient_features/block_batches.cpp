// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/block_batches.h"

#include <algorithm>

#include "skein/data/rows/packing.h"

namespace skein::gradient_features {

BlockBatches block_batches(const RowSamples& all, const SampleRange& rows, int64_t tokens) {
  BlockBatches block;
  auto next = std::ranges::lower_bound(all.rows, rows.first);
  std::vector<int64_t> lengths;
  for (int64_t row = rows.first; row < rows.last; ++row) {
    if (next == all.rows.end() || *next != row) {
      block.skipped.push_back({row, SkipReason::kNoTarget});
      continue;
    }
    block.samples.push_back(next++ - all.rows.begin());
    block.rows.push_back(row);
    lengths.push_back(all.source.length(block.samples.back()));
    tokens = std::max(tokens, lengths.back());
  }
  if (lengths.empty()) return block;
  const auto packs = data::best_fit(lengths, tokens);
  for (int64_t i = 0; i < packs.count(); ++i) {
    const auto items = packs.group(i);
    block.batches.emplace_back(items.begin(), items.end());
  }
  return block;
}

}  // namespace skein::gradient_features
