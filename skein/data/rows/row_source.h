// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Samples of prepared rows: those that stay (row_limits.h), in their order, each at most cutoff_len
// tokens long, or two answers of at most so many.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "skein/data/rows/prepare_rows.h"
#include "skein/data/rows/row_limits.h"
#include "skein/data/sample_set.h"
#include "skein/data/sample_source.h"

namespace skein::data {

// What all kinds of rows have in common.
class RowsSource : public SampleSource {
 public:
  int64_t count() const final { return counts().samples; }
  int64_t length(int64_t sample) const final;
  int64_t num_targets(int64_t sample) const final;
  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const final;
  int64_t documents_per_sample() const final { return answers_of(kind()); }
  void append_ends(int64_t sample, std::vector<int64_t>& ends) const final;

  RowKind kind() const { return rows_.kind; }
  const PreparedRows& prepared() const { return rows_; }
  const RowLimits& limits() const { return limits_; }
  const RowCounts& counts() const { return tally_.counts(); }  // of all prepared rows
  const FirstRows& first_rows() const { return tally_.first(); }
  // A prepared row's number; requires 0 <= sample < count().
  int64_t row_of(int64_t sample) const;
  // The number of an answer in prepared().rows.
  int64_t answer_of(int64_t sample, int64_t answer = 0) const {
    return row_of(sample) * answers_of(kind()) + answer;
  }
  // Prepared rows that are no samples, in their order.
  std::vector<int64_t> left_out() const;
  std::string place_of(int64_t sample) const { return rows_.place_of(row_of(sample)); }

 protected:
  // Throws what RowTally does, and IoError when no row stays. Requires rows of that kind.
  RowsSource(PreparedRows rows, const RowLimits& limits, RowKind kind);

  // Of prepared().rows.entry(answer), as it is trained on.
  int64_t kept_length(int64_t answer) const;
  int64_t kept_targets(int64_t answer) const;

 private:
  bool is_too_long(int64_t answer) const;
  bool are_equal(int64_t row) const;
  bool stays(int64_t row);
  void read_answer(int64_t answer, std::span<int64_t> tokens, std::span<int64_t> targets) const;

  PreparedRows rows_;
  RowLimits limits_;
  RowTally tally_;
  std::vector<uint32_t> kept_;  // rows; empty: all are
};

// For fine-tuning: a sample is a row.
class RowSource final : public RowsSource {
 public:
  // Throws what RowsSource does.
  RowSource(PreparedRows rows, const RowLimits& limits)
      : RowsSource(std::move(rows), limits, RowKind::kRows) {}
};

// The samples of a split when val_size holds some of `count` out: below 1 a share of them, else so
// many; at least one on each side. The set follows from the seed alone. Throws UserError when that
// cannot be. 0 holds none out.
SampleSet rows_of_split(int64_t count, double val_size, uint64_t seed, Holdout side);

}  // namespace skein::data
