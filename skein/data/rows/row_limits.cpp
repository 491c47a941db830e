// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_limits.h"

#include <fmt/format.h>

#include "skein/core/amounts.h"
#include "skein/core/error.h"

namespace skein::data {

RowTally::RowTally(const RowLimits& limits) : limits_(limits) {
  if (limits.cutoff_len >= 2) return;
  throw UserError(
      fmt::format("cutoff_len: {} leaves nothing to predict; a row needs at least 2 tokens",
                  limits.cutoff_len));
}

bool RowTally::add(const RowSize& row, const std::function<std::string()>& place) {
  const bool too_long = row.length > limits_.cutoff_len;
  if (too_long && limits_.excess_length == ExcessLength::kError) {
    throw IoError(
        fmt::format("{}: the row has {} tokens, cutoff_len is {}; give a larger cutoff_len, or "
                    "excess_length_strategy: truncate or drop",
                    place(), row.length, limits_.cutoff_len));
  }
  ++counts_.rows;
  counts_.tokens += row.length;
  counts_.targets += row.targets;
  const bool is_dropped = too_long && limits_.excess_length == ExcessLength::kDrop;
  const int64_t targets = is_dropped ? 0 : row.targets_within;
  if (too_long) {
    ++counts_.too_long;
    counts_.tokens_lost += row.length - (is_dropped ? 0 : limits_.cutoff_len);
    counts_.targets_lost += row.targets - targets;
  }
  if (is_dropped) return false;
  if (targets == 0) ++counts_.without_target;
  if (targets > 0) ++counts_.samples;
  return targets > 0;
}

void RowTally::require_samples(const std::string& first) const {
  if (counts_.samples > 0) return;
  throw IoError(fmt::format(
      "none of {} can be trained on: {} without a target, {} longer than cutoff_len={}; the first "
      "is {}",
      counted(static_cast<uint64_t>(counts_.rows), "row"), counts_.without_target, counts_.too_long,
      limits_.cutoff_len, first));
}

}  // namespace skein::data
