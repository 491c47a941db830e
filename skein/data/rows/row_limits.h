// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which rows are trained on, and how much of each?
//
// A row that is longer than cutoff_len loses its end, is left out, or ends the run. A row without a
// target has nothing to teach and is left out, also when only its end had one. Everything is
// counted. Those who train and those who look ahead decide here.

#include <cstdint>
#include <functional>
#include <string>

#include "skein/config/run_config.h"

namespace skein::data {

using config::ExcessLength;

struct RowLimits {
  int64_t cutoff_len = 2048;
  ExcessLength excess_length = ExcessLength::kTruncate;

  bool operator==(const RowLimits&) const = default;
};

struct RowCounts {
  int64_t rows = 0;
  int64_t too_long = 0;        // cut short or left out, as the limits say
  int64_t without_target = 0;  // left out; of those that are not too long to be kept
  int64_t samples = 0;         // what stays
  int64_t tokens = 0, tokens_lost = 0;
  int64_t targets = 0, targets_lost = 0;

  bool operator==(const RowCounts&) const = default;
};

// A row before anything is cut.
struct RowSize {
  int64_t length = 0;
  int64_t targets = 0;
  int64_t targets_within = 0;  // those among its first cutoff_len ids
};

class RowTally {
 public:
  // Throws UserError when cutoff_len is below 2.
  explicit RowTally(const RowLimits& limits);

  // Counts the row. Whether it stays. Throws IoError, with the row's place, when it is too long and
  // that is an error.
  bool add(const RowSize& row, const std::function<std::string()>& place);
  const RowCounts& counts() const { return counts_; }
  // Throws IoError when no row stays; `first` is the place of the first.
  void require_samples(const std::string& first) const;

 private:
  RowLimits limits_;
  RowCounts counts_;
};

}  // namespace skein::data
