// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Samples for fine-tuning: prepared rows, each at most cutoff_len tokens long.
//
// A row that is longer loses its end, is left out, or ends the run. A row without a target has
// nothing to teach and is left out, also when only its end had one. Everything is counted. Samples
// are the rows that stay, in their order.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/data/rows/prepare_rows.h"
#include "skein/data/sample_set.h"
#include "skein/data/sample_source.h"

namespace skein::data {

using config::ExcessLength;

struct RowLimits {
  int64_t cutoff_len = 2048;
  ExcessLength excess_length = ExcessLength::kTruncate;

  bool operator==(const RowLimits&) const = default;
};

// Of all prepared rows.
struct RowCounts {
  int64_t rows = 0;
  int64_t too_long = 0;        // cut short or left out, as the limits say
  int64_t without_target = 0;  // left out; of those that are not too long to be kept
  int64_t samples = 0;         // what stays
  int64_t tokens = 0, tokens_lost = 0;
  int64_t targets = 0, targets_lost = 0;

  bool operator==(const RowCounts&) const = default;
};

class RowSource final : public SampleSource {
 public:
  // Throws UserError when cutoff_len is below 2; IoError, with the row's place, when a row is too
  // long and that is an error, and when no row stays.
  RowSource(PreparedRows rows, const RowLimits& limits);

  int64_t count() const override { return counts_.samples; }
  int64_t length(int64_t sample) const override { return kept_length(row_of(sample)); }
  int64_t num_targets(int64_t sample) const override { return kept_targets(row_of(sample)); }
  void read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const override;

  const PreparedRows& prepared() const { return rows_; }
  const RowLimits& limits() const { return limits_; }
  const RowCounts& counts() const { return counts_; }
  // A prepared row's number; requires 0 <= sample < count().
  int64_t row_of(int64_t sample) const;
  // Prepared rows that are no samples, in their order.
  std::vector<int64_t> left_out() const;
  std::string place_of(int64_t sample) const { return rows_.place_of(row_of(sample)); }

 private:
  bool is_too_long(int64_t row) const;
  int64_t kept_length(int64_t row) const;
  int64_t kept_targets(int64_t row) const;
  bool count_row(int64_t row);

  PreparedRows rows_;
  RowLimits limits_;
  RowCounts counts_;
  std::vector<uint32_t> kept_;  // rows; empty: all are
};

// The samples of a split when val_size holds some of `count` out: below 1 a share of them, else so
// many; at least one on each side. The set follows from the seed alone. Throws UserError when that
// cannot be. 0 holds none out.
SampleSet rows_of_split(int64_t count, double val_size, uint64_t seed, Holdout side);

}  // namespace skein::data
