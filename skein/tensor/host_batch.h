// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One micro-batch in plain memory, as loaders make it. Free of torch; batch.h turns it into
// tensors.

#include <cstdint>
#include <vector>

namespace skein::tensor {

constexpr int64_t kIgnore = -100;  // the target of a position that predicts nothing

struct HostBatch {
  int64_t rows = 0;
  int64_t length = 0;              // of every row
  std::vector<int64_t> tokens;     // rows x length
  std::vector<int64_t> targets;    // rows x length: what each position predicts, or kIgnore
  std::vector<int64_t> documents;  // one for each row, or for each document: keys dropout
  int64_t num_targets = 0;         // that are not kIgnore
  // Where each document of a run ends (exclusive): there is one row then, of documents behind each
  // other that do not see each other. Empty: every row is one document.
  std::vector<int32_t> document_ends{};
  // Tokens of each row before its padding. Empty: all rows are full.
  std::vector<int64_t> row_lengths{};
};

}  // namespace skein::tensor
