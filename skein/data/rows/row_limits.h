// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which rows are trained on, and how much of each?
//
// A row that is longer than cutoff_len loses its end, is left out, or ends the run. A row without a
// target has nothing to teach and is left out, also when only its end had one. Of a pair each
// answer is as long as that, and what becomes of one becomes of both; two answers that are equal
// teach nothing either. A prompt has no target and stays; one that is too long loses its beginning,
// is left out, or ends the run. Everything is counted. Those who train and those who look ahead
// decide here.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "skein/config/run_config.h"
#include "skein/data/rows/row.h"

namespace skein::data {

using config::EqualPairs;
using config::ExcessLength;

struct RowLimits {
  int64_t cutoff_len = 2048;
  ExcessLength excess_length = ExcessLength::kTruncate;
  EqualPairs equal_pairs = EqualPairs::kDrop;

  bool operator==(const RowLimits&) const = default;
};

struct RowCounts {
  int64_t rows = 0;
  int64_t too_long = 0;         // cut short or left out, as the limits say
  int64_t without_target = 0;   // left out; of those that are not too long to be kept
  int64_t prompt_too_long = 0;  // left out: cutoff_len takes away all that would be trained on
  int64_t samples = 0;          // what stays
  int64_t tokens = 0, tokens_lost = 0;
  int64_t targets = 0, targets_lost = 0;
  int64_t equal = 0;  // pairs of two equal answers, left out or kept as the limits say

  bool operator==(const RowCounts&) const = default;
};

// The places of the first rows of what is counted; empty: there is none.
struct FirstRows {
  std::string without_target, prompt_too_long, equal;

  bool operator==(const FirstRows&) const = default;
};

// A row, or one answer of a pair behind the prompt, before anything is cut.
struct RowSize {
  int64_t length = 0;
  int64_t targets = 0;
  int64_t targets_within = 0;  // those among its first cutoff_len ids
};

class RowTally {
 public:
  // Throws UserError when cutoff_len is below 2, but of prompts.
  explicit RowTally(const RowLimits& limits, RowKind kind = RowKind::kRows);

  // Counts a row: one, or the two answers of a pair. Whether it stays. `are_equal` is asked only of
  // a pair that would stay. Throws IoError, with the row's place, when it is too long, or its
  // answers are equal, and that is an error.
  bool add(std::span<const RowSize> answers, const std::function<std::string()>& place,
           const std::function<bool()>& are_equal = {});
  const RowCounts& counts() const { return counts_; }
  const FirstRows& first() const { return first_; }
  // Throws IoError when no row stays; `first` is the place of the first.
  void require_samples(const std::string& first) const;

 private:
  void refuse_long(std::span<const RowSize> answers,
                   const std::function<std::string()>& place) const;
  void add_sizes(std::span<const RowSize> answers, bool is_dropped);

  RowLimits limits_;
  RowKind kind_;
  RowCounts counts_;
  FirstRows first_;
};

// "rows", "pairs": what people read that is counted.
std::string_view plural_of(RowKind kind);

}  // namespace skein::data
