// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {

RowsSource::RowsSource(PreparedRows rows, const RowLimits& limits, RowKind kind)
    : rows_(std::move(rows)), limits_(limits), tally_(limits, kind) {
  SKEIN_CHECK(rows_.kind == kind, "a source reads rows of its kind");
  const int64_t count = rows_.count();
  SKEIN_CHECK(count <= UINT32_MAX, "rows are counted in 32 bits");
  for (int64_t row = 0; row < count; ++row) {
    if (stays(row)) kept_.push_back(static_cast<uint32_t>(row));
  }
  if (kept_.empty()) tally_.require_samples(rows_.place_of(0));
  if (std::ssize(kept_) == count) kept_ = {};
}

bool RowsSource::stays(int64_t row) {
  std::array<RowSize, 2> sizes;
  const int64_t answers = answers_of(kind());
  for (int64_t i = 0; i < answers; ++i) {
    const int64_t answer = row * answers + i;
    const auto& entry = rows_.rows.entry(answer);
    sizes[static_cast<size_t>(i)] = {.length = entry.length,
                                     .targets = entry.num_targets,
                                     .targets_within = kept_targets(answer)};
  }
  return tally_.add(
      std::span(sizes).first(static_cast<size_t>(answers)), [&] { return rows_.place_of(row); },
      [&] { return are_equal(row); });
}

bool RowsSource::are_equal(int64_t row) const {
  const int64_t chosen = 2 * row, rejected = chosen + 1;
  const int64_t length = kept_length(chosen);
  return length == kept_length(rejected) && rows_.rows.begin_alike(chosen, rejected, length);
}

bool RowsSource::is_too_long(int64_t answer) const {
  return rows_.rows.entry(answer).length > limits_.cutoff_len;
}

int64_t RowsSource::kept_length(int64_t answer) const {
  return std::min<int64_t>(rows_.rows.entry(answer).length, limits_.cutoff_len);
}

int64_t RowsSource::kept_targets(int64_t answer) const {
  if (!is_too_long(answer)) return rows_.rows.entry(answer).num_targets;
  int64_t targets = 0;
  for (int64_t at = 1; at < limits_.cutoff_len; ++at) targets += rows_.rows.is_trained(answer, at);
  return targets;
}

int64_t RowsSource::length(int64_t sample) const {
  const int64_t first = answer_of(sample);
  int64_t length = 0;
  for (int64_t i = 0; i < answers_of(kind()); ++i) length += kept_length(first + i);
  return length;
}

int64_t RowsSource::num_targets(int64_t sample) const {
  const int64_t first = answer_of(sample);
  int64_t targets = 0;
  for (int64_t i = 0; i < answers_of(kind()); ++i) targets += kept_targets(first + i);
  return targets;
}

void RowsSource::append_ends(int64_t sample, std::vector<int64_t>& ends) const {
  const int64_t first = answer_of(sample);
  int64_t end = 0;
  for (int64_t i = 0; i < answers_of(kind()); ++i) ends.push_back(end += kept_length(first + i));
}

int64_t RowsSource::row_of(int64_t sample) const {
  SKEIN_CHECK(0 <= sample && sample < count(), fmt::format("sample {} of {}", sample, count()));
  return kept_.empty() ? sample : kept_[static_cast<size_t>(sample)];
}

std::vector<int64_t> RowsSource::left_out() const {
  std::vector<int64_t> rows;
  if (kept_.empty()) return rows;
  auto kept = kept_.begin();
  for (int64_t row = 0; row < rows_.count(); ++row) {
    if (kept != kept_.end() && *kept == row) {
      ++kept;
    } else {
      rows.push_back(row);
    }
  }
  return rows;
}

void RowsSource::read(int64_t sample, std::span<int64_t> tokens, std::span<int64_t> targets) const {
  SKEIN_CHECK(std::ssize(tokens) == length(sample) && tokens.size() == targets.size(),
              "a sample is read as a whole");
  const int64_t first = answer_of(sample);
  size_t at = 0;
  for (int64_t i = 0; i < answers_of(kind()); ++i) {
    const auto length = static_cast<size_t>(kept_length(first + i));
    read_answer(first + i, tokens.subspan(at, length), targets.subspan(at, length));
    at += length;
  }
}

void RowsSource::read_answer(int64_t answer, std::span<int64_t> tokens,
                             std::span<int64_t> targets) const {
  // Of a prompt the end stays: what it asks.
  const bool keeps_end = kind() == RowKind::kPrompts;
  const int64_t length = rows_.rows.entry(answer).length;
  rows_.rows.read(answer, tokens, keeps_end ? length - std::ssize(tokens) : 0);
  if (keeps_end) {
    std::ranges::fill(targets, tensor::kIgnore);
    return;
  }
  for (size_t at = 0; at + 1 < tokens.size(); ++at) {
    const bool is_target = rows_.rows.is_trained(answer, static_cast<int64_t>(at) + 1);
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
