// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What the reference says of a run's samples, asked once and kept with the prepared data
// (precompute_ref_log_probs). The file's format: docs/data.md.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "skein/algorithms/algorithm.h"
#include "skein/core/file.h"
#include "skein/data/run_samples.h"
#include "skein/data/source_files.h"
#include "skein/tensor/batch.h"

namespace skein::train {

// Of one split, for each pass of the algorithm: a number for each answer of each sample. Empty for
// passes that are not the reference's; not a number for samples that the split does not have.
using SplitLooks = std::vector<std::vector<double>>;

class KeptLooks {
 public:
  void set(data::Split split, SplitLooks looks) { looks_[index(split)] = std::move(looks); }
  // Of a batch's answers, (A) float64.
  at::Tensor of(data::Split split, size_t pass, const tensor::Answers& answers) const;

 private:
  static size_t index(data::Split split) { return split == data::Split::kTrain ? 0 : 1; }

  std::array<SplitLooks, 2> looks_;
};

// What the numbers of a split follow from, as a file name.
std::string looks_key(const data::ChosenSamples& samples, const std::string& reference);
// Empty where the file is not there, or is not whole: then a warning is logged.
SplitLooks read_looks(const fs::path& path);
void write_looks(const fs::path& path, const SplitLooks& looks);

}  // namespace skein::train
