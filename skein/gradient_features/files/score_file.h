// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The scores of a set of training samples, on disk: for `select`, and as LESS has them.

#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/score.h"

namespace skein::gradient_features {

// What select needs of them.
struct StoredScores {
  std::vector<float> values;  // by sample
  int64_t max_samples = 0;
  std::vector<DataFile> data_files;
};

// DIR/NAME_influence_score.safetensors and DIR/NAME_influence_score.pt.
std::vector<fs::path> score_files(const fs::path& folder, const std::string& name);
// Returns both.
std::vector<fs::path> write_scores(const fs::path& folder, const std::string& name,
                                   const Scores& scores);
// The .safetensors file. Throws UserError for another file, IoError for a damaged one.
StoredScores read_scores(const fs::path& path);

}  // namespace skein::gradient_features
