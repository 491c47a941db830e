// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// In which packs, and in which order, does an epoch use its rows?
//
// The epoch's permutation is cut into windows of rows, and each window is arranged alone:
//
//   packing           best fit into packs of `capacity` tokens, packs then shuffled
//   group_by_length   rows sorted by length, cut into runs of 256, runs then shuffled: rows that
//                     are dealt at one time take about as long as each other
//
// A window's arrangement is a pure function of (seed, epoch, window) and the rows' lengths, so that
// any rank finds any pack, having arranged the epoch's windows once to count their packs.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "skein/data/packs.h"
#include "skein/data/sample_set.h"
#include "skein/data/sample_source.h"

namespace skein::data {

struct RowOrderOptions {
  uint64_t seed = 0;
  int64_t capacity = 0;               // tokens of a pack; 0: each row alone, grouped by length
  int64_t window = int64_t{1} << 14;  // rows; part of the meaning of saved positions
};

class RowOrder final : public Packs {
 public:
  using LengthOf = std::function<int64_t(int64_t sample)>;  // called by any thread

  // Requires that no sample of the set is longer than the capacity.
  RowOrder(LengthOf length_of, const SampleSet& set, const RowOrderOptions& options)
      : length_of_(std::move(length_of)), set_(set), options_(options) {}

  int64_t count(int64_t epoch) const override;
  bool is_even() const override { return !packs(); }
  void append(int64_t epoch, int64_t pack, std::vector<int64_t>& samples) const override;

  // Of the epoch's packs, the share of tokens that are not empty.
  double fill(int64_t epoch) const;

 private:
  // The samples of a window's packs behind each other.
  struct Window {
    int64_t epoch = 0, number = 0;
    std::vector<int64_t> samples;
    std::vector<int64_t> ends;
  };
  using WindowEnds = std::vector<int64_t>;  // packs of the epoch at the end of each window

  bool packs() const { return options_.capacity > 0; }
  int64_t num_windows() const;
  Window arrange(int64_t epoch, int64_t number) const;
  std::shared_ptr<const Window> window(int64_t epoch, int64_t number) const;
  std::shared_ptr<const WindowEnds> window_ends(int64_t epoch) const;

  LengthOf length_of_;
  SampleSet set_;
  RowOrderOptions options_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<const WindowEnds>> ends_;  // by epoch
  mutable std::deque<std::shared_ptr<const Window>> recent_;
};

// Of the source's samples; keeps the source.
RowOrder::LengthOf lengths_of(std::shared_ptr<const SampleSource> source);

}  // namespace skein::data
