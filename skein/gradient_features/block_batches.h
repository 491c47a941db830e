// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which samples of a block go through the model together?
//
// A pure function of the block and the data: rows are the same bytes whichever rank has the block,
// and after every interruption.

#include <cstdint>
#include <vector>

#include "skein/data/sample_source.h"
#include "skein/gradient_features/files/collection.h"

namespace skein::gradient_features {

// The samples that rows of the data have become: source sample k is row rows[k], rising. Rows that
// are no sample have nothing that is supervised.
struct RowSamples {
  const data::SampleSource& source;
  std::vector<int64_t> rows;
};

struct BlockBatches {
  std::vector<int64_t> samples;               // of the source
  std::vector<int64_t> rows;                  // theirs, rising
  std::vector<SkippedSample> skipped;         // rows of the block that are none
  std::vector<std::vector<int64_t>> batches;  // places in `samples`, each of which is in one
};

// Runs of at most `tokens` tokens, or of one sample that has more.
BlockBatches block_batches(const RowSamples& all, const SampleRange& rows, int64_t tokens);

}  // namespace skein::gradient_features
