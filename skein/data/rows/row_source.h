// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Samples for fine-tuning: of prepared rows those that stay (row_limits.h), in their order, each at
// most cutoff_len tokens long.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/data/rows/prepare_rows.h"
#include "skein/data/rows/row_limits.h"
#include "skein/data/sample_set.h"
#include "skein/data/sample_source.h"

namespace skein::data {

class RowSource final : public SampleSource {
 public:
  // Throws what RowTally does, and IoError when no row stays.
  RowSource(PreparedRows rows, const RowLimits& limits);

  int64_t count() const override { return counts().samples; }
  int64_t length(int64_t sample) const override { return kept_length(row_of(sample)); }
  int64_t num_targets(int64_t sample) const override { return kept_targets(row_of(sample)); }
  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const override;

  const PreparedRows& prepared() const { return rows_; }
  const RowLimits& limits() const { return limits_; }
  const RowCounts& counts() const { return tally_.counts(); }  // of all prepared rows
  // A prepared row's number; requires 0 <= sample < count().
  int64_t row_of(int64_t sample) const;
  // Prepared rows that are no samples, in their order.
  std::vector<int64_t> left_out() const;
  std::string place_of(int64_t sample) const { return rows_.place_of(row_of(sample)); }

 private:
  bool is_too_long(int64_t row) const;
  int64_t kept_length(int64_t row) const;
  int64_t kept_targets(int64_t row) const;

  PreparedRows rows_;
  RowLimits limits_;
  RowTally tally_;
  std::vector<uint32_t> kept_;  // rows; empty: all are
};

// The samples of a split when val_size holds some of `count` out: below 1 a share of them, else so
// many; at least one on each side. The set follows from the seed alone. Throws UserError when that
// cannot be. 0 holds none out.
SampleSet rows_of_split(int64_t count, double val_size, uint64_t seed, Holdout side);

}  // namespace skein::data
