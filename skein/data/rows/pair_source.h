// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Samples of answers that people have judged: in pairs, or each alone.

#include <cstdint>
#include <memory>
#include <span>

#include "skein/data/rows/row_source.h"
#include "skein/data/sample_source.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {

// A sample is a pair: two documents, the chosen answer and the rejected one, each behind the
// prompt.
class PairSource final : public RowsSource {
 public:
  // Throws what RowsSource does.
  PairSource(PreparedRows rows, const RowLimits& limits)
      : RowsSource(std::move(rows), limits, RowKind::kPairs) {}

  tensor::Counts counts_of(int64_t sample) const override;
  std::shared_ptr<const tensor::HostAnswers> answers(
      std::span<const int64_t> samples) const override;
  int64_t shared_tokens(int64_t sample) const override;
};

// A sample is an answer behind its prompt.
class FeedbackSource final : public RowsSource {
 public:
  // Throws what RowsSource does.
  FeedbackSource(PreparedRows rows, const RowLimits& limits)
      : RowsSource(std::move(rows), limits, RowKind::kFeedback) {}

  tensor::Counts counts_of(int64_t sample) const override;
  std::shared_ptr<const tensor::HostAnswers> answers(
      std::span<const int64_t> samples) const override;

  bool is_desirable(int64_t sample) const;
};

// The samples of `source` under the same numbers, each prompt with the answer of the nearest sample
// before it that stands behind another prompt (of the first, the last one): what is said in
// general, to compare answers with. It follows from the rows alone, whatever the split, the epoch
// or the ranks. Cut to cutoff_len.
std::shared_ptr<const SampleSource> mismatched_of(std::shared_ptr<const FeedbackSource> source);

// The source of rows of any kind. Throws what RowsSource does.
std::shared_ptr<const RowsSource> source_of(PreparedRows rows, const RowLimits& limits);

}  // namespace skein::data
