// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Puts documents behind each other: a micro-batch that is a run.
//
// Documents that begin alike may share the computation of their beginning. Of a prompt of P tokens
// the run then holds the first P - 1 once, and behind them each document from its P-th token on:
// that one is computed for each by itself, since it predicts what they do not have in common.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skein/tensor/host_batch.h"

namespace skein::data {

struct DocumentView {
  std::span<const int64_t> tokens, targets;
  int64_t number = 0;  // HostBatch::documents
};

// How many tokens are computed once where `answers` documents begin with the same `prompt` tokens.
int64_t shared_length(int64_t prompt, int64_t answers);

class RunWriter {
 public:
  void add(const DocumentView& document);
  // Documents that begin with the same `prompt` tokens, of which none but the last has a target.
  // Each has so many tokens at least.
  void add_group(std::span<const DocumentView> documents, int64_t prompt);

  // The run; of nothing, one token that predicts nothing. `answers` number documents as they were
  // added, or are null.
  tensor::HostBatch finish(std::shared_ptr<const tensor::HostAnswers> answers);

 private:
  void append(const DocumentView& document, int32_t continues);

  tensor::HostBatch batch_{.rows = 1};
  std::vector<int64_t> places_;  // of what was added, among the run's documents
};

}  // namespace skein::data
