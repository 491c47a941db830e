// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a run over rows train on, and what does it evaluate?

#include <cstdint>
#include <memory>
#include <optional>

#include "skein/config/run_config.h"
#include "skein/data/rows/row_order.h"
#include "skein/data/rows/row_source.h"
#include "skein/data/run_samples.h"

namespace skein::data {

struct RunRowsOptions {
  config::DataConfig data;  // files, cache, limits of samples, workers
  RowEncoder encoder;       // says which kind of rows they are
  RowLimits limits;
  bool packing = false;          // packs of pack_tokens(); off: each row alone
  bool group_by_length = false;  // without effect on packs, which are alike
  double val_size = 0;           // held out: below 1 a share of the rows, else so many
  bool evaluates = false;
  uint64_t seed = 0;
  int64_t vocab_size = 0;  // of the model
};

// One split: a source, and which of its samples.
struct SplitRows {
  std::shared_ptr<const RowsSource> source;
  SampleSet set;
  bool is_held_out = false;  // the source is that of the training rows
};

struct RunRows {
  SplitRows train;
  std::optional<SplitRows> eval;  // absent: no data of its own, and none held out
};

// For a loader. Of answers that were judged alone with their mismatched view.
ChosenSamples chosen_samples(const SplitRows& rows);

// cutoff_len, or the two answers of a pair of which each is as long.
int64_t pack_tokens(const RunRowsOptions& options);

// What a run holds out of its training rows: val_size, where it has no evaluation data; 5 % where
// it has neither and evaluates.
double held_out_rows(const RunRowsOptions& options);

// Of `count` rows that stay, those that are trained on: neither held out, nor beyond
// max_train_samples. Throws UserError as rows_of_split() does.
SampleSet trained_rows(const RunRowsOptions& options, int64_t count);

// Rows of the configured data, which are prepared if nobody did; overwrite_cache is honoured: for
// the launcher, and commands. Throws what prepare_rows() and RowsSource throw, and UserError for
// ids that the model's vocabulary does not have.
RunRows open_run_rows(const RunRowsOptions& options);

// The evaluation rows alone, of data of their own (eval_file): for a command that does not train.
SplitRows open_eval_rows(const RunRowsOptions& options);

// The order of the training rows; null: each alone, in the epoch's permutation.
std::shared_ptr<const Packs> packs_of(const RunRowsOptions& options, const SplitRows& train);
std::shared_ptr<const Packs> packs_of(const RunRowsOptions& options, RowOrder::LengthOf length_of,
                                      const SampleSet& set);

// open_run_rows() for a loader, which does not prepare again what its launcher has just prepared.
RunSamples open_rows(const RunRowsOptions& options);

}  // namespace skein::data
