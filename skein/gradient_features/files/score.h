// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much does each training sample help with the validation samples?
//
// The score of a training sample is, over checkpoints, the sum of weight x cosine between its row
// and a validation sample's; of these the mean over the samples of a group (subtask), and of the
// groups the largest. Training rows are streamed, validation rows held.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/collection_facts.h"

namespace skein::gradient_features {

struct ScoreOptions {
  // Folders of collections, one of each for every checkpoint, in the same order.
  std::vector<fs::path> train, validation;
  std::vector<double> weights;       // as many, of which the sum is not 0; divided by it
  std::vector<std::string> groups;   // of each validation sample; empty: all are one group
  std::optional<int64_t> dimension;  // absent: the largest that all of them have
  int threads = 0;                   // 0: all cores
};

struct Scores {
  // By training sample; minus infinity for those that were skipped.
  std::vector<float> values;
  int64_t num_skipped = 0;
  int64_t max_samples = 0;           // CollectionFacts::max_samples
  std::vector<DataFile> data_files;  // of the training samples
  int64_t dimension = 0;
  std::vector<std::string> groups;  // their names, by first appearance
  std::vector<double> weights;      // that sum to 1
};

// Throws UserError when collections do not belong together (both are named), Stopped when a signal
// asks for it, and what RowReader throws.
Scores score(const ScoreOptions& options);

}  // namespace skein::gradient_features
