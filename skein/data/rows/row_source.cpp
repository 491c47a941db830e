// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {

RowSource::RowSource(PreparedRows rows, const RowLimits& limits)
    : rows_(std::move(rows)), limits_(limits), tally_(limits) {
  const int64_t count = rows_.rows.count();
  SKEIN_CHECK(count <= UINT32_MAX, "rows are counted in 32 bits");
  for (int64_t row = 0; row < count; ++row) {
    const auto& entry = rows_.rows.entry(row);
    const RowSize size{
        .length = entry.length, .targets = entry.num_targets, .targets_within = kept_targets(row)};
    if (tally_.add(size, [&] { return rows_.place_of(row); })) {
      kept_.push_back(static_cast<uint32_t>(row));
    }
  }
  if (kept_.empty()) tally_.require_samples(rows_.place_of(0));
  if (std::ssize(kept_) == count) kept_ = {};
}

bool RowSource::is_too_long(int64_t row) const {
  return rows_.rows.entry(row).length > limits_.cutoff_len;
}

int64_t RowSource::kept_length(int64_t row) const {
  return std::min<int64_t>(rows_.rows.entry(row).length, limits_.cutoff_len);
}

int64_t RowSource::kept_targets(int64_t row) const {
  if (!is_too_long(row)) return rows_.rows.entry(row).num_targets;
  int64_t targets = 0;
  for (int64_t at = 1; at < limits_.cutoff_len; ++at) targets += rows_.rows.is_trained(row, at);
  return targets;
}

int64_t RowSource::row_of(int64_t sample) const {
  SKEIN_CHECK(0 <= sample && sample < count(), fmt::format("sample {} of {}", sample, count()));
  return kept_.empty() ? sample : kept_[static_cast<size_t>(sample)];
}

std::vector<int64_t> RowSource::left_out() const {
  std::vector<int64_t> rows;
  if (kept_.empty()) return rows;
  auto kept = kept_.begin();
  for (int64_t row = 0; row < rows_.rows.count(); ++row) {
    if (kept != kept_.end() && *kept == row) {
      ++kept;
    } else {
      rows.push_back(row);
    }
  }
  return rows;
}

void RowSource::read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const {
  const int64_t row = row_of(sample);
  SKEIN_CHECK(std::ssize(tokens) == kept_length(row) && tokens.size() == targets.size(),
              "a sample is read as a whole");
  rows_.rows.read(row, tokens);
  for (size_t at = 0; at + 1 < tokens.size(); ++at) {
    const bool is_target = rows_.rows.is_trained(row, static_cast<int64_t>(at) + 1);
    targets[at] = is_target ? tokens[at + 1] : tensor::kIgnore;
  }
  targets.back() = tensor::kIgnore;
}

SampleSet rows_of_split(int64_t count, double val_size, uint64_t seed, Holdout side) {
  if (val_size == 0) return SampleSet(count);
  const double wanted = val_size < 1 ? std::round(val_size * static_cast<double>(count)) : val_size;
  if (val_size < 0 || std::isnan(val_size) || (val_size >= 1 && std::floor(val_size) != val_size)) {
    throw UserError(fmt::format(
        "val_size: {} is neither a share below 1 nor a whole number of rows", val_size));
  }
  if (wanted > static_cast<double>(count - 1) || count < 2) {
    throw UserError(
        fmt::format("val_size: {} of {} leaves nothing to train on; give less, an "
                    "eval_file, or more data",
                    val_size, counted(static_cast<uint64_t>(count), "row")));
  }
  return SampleSet::divided(count, std::max<int64_t>(1, static_cast<int64_t>(wanted)), seed, side);
}

}  // namespace skein::data
