// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which micro-batches does this rank train on in a step?
//
// A step takes the next per_device_batch * accumulation * size samples of the epoch's order (see
// sample_plan.h) and deals them in contiguous runs of per_device_batch: sample j of the step is
//
//   row j % B  of rank (j / B) % R  in micro-batch j / (B * R)     (B per device, R ranks).
//
// In an epoch's short last step the missing rows are absent. Where none is left for a rank, it gets
// one token without a target (weight zero), so that all ranks run the same number of micro-batches.
//
// `batches` is a pure function of the step: a resumed run asks for the step it stopped at, and
// nothing needs to be saved. Not collective; each rank reads the file alone.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/data/blocks.h"
#include "skein/data/sample_plan.h"
#include "skein/data/token_array.h"
#include "skein/tensor/batch.h"

namespace skein::data {

struct LoaderOptions {
  config::DataConfig data;
  int64_t per_device_batch = 1;
  int64_t accumulation = 1;
  uint64_t seed = 0;
  int64_t vocab_size = 0;
};

struct StepBatches {
  std::vector<tensor::Batch> micro_batches;  // this rank's; always `accumulation` of them
  int64_t num_targets = 0;                   // of the whole step, over all ranks
  std::vector<int64_t> samples;              // ids of the whole step, the same on every rank
  int64_t samples_end = 0;                   // samples used since the start, this step included
  double epoch = 0;                          // epochs done after this step, for logs
};

class Loader {
 public:
  // Reads the file. Throws UserError or IoError when it cannot be trained on: no data, broken
  // lines, a token id that the model's vocabulary does not have.
  Loader(const LoaderOptions& options, int rank, int size);

  int64_t num_samples() const { return plan_.num_samples(); }
  int64_t steps_per_epoch() const { return plan_.steps_per_epoch(); }

  // CPU tensors. Rows are padded to the longest row of their micro-batch with token 0, which has no
  // target. A row's document is epoch * num_samples + sample: dropout differs from epoch to epoch.
  StepBatches batches(int64_t step) const;

  // Tells one data set from another: 32 hexadecimal digits of the tokens and the block size.
  // Reads all tokens; call it once.
  std::string data_digest() const;

 private:
  tensor::Batch batch(std::span<const int64_t> samples, int64_t epoch_index) const;

  LoaderOptions options_;
  int64_t rank_;
  int64_t size_;
  TokenArray tokens_;
  Blocks blocks_;
  SamplePlan plan_;
};

}  // namespace skein::data
