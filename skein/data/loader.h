// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which micro-batches does this rank train on in a step, and evaluate?
//
// A step takes the next per_device_batch * accumulation * size samples of the epoch's order (see
// sample_plan.h) and deals them in contiguous runs of per_device_batch: sample j of the step is
//
//   row j % B  of rank (j / B) % R  in micro-batch j / (B * R)     (B per device, R ranks).
//
// In an epoch's short last step the missing rows are absent. Where none is left for a rank, it gets
// one token without a target (weight zero), so that all ranks run the same number of micro-batches.
// Evaluation deals its samples in the same way, each exactly once (see eval_plan.h).
//
// `batches` is a pure function of the step: a resumed run asks for the step it stopped at, and
// nothing needs to be saved. A thread makes the next steps' batches ahead of time. Not collective;
// each rank maps the prepared data alone.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/tensor/batch.h"

namespace skein::data {

struct LoaderOptions {
  config::DataConfig data;
  config::ModelConfig model;  // for the tokenizer
  int64_t per_device_batch = 1;
  int64_t accumulation = 1;
  int64_t eval_batch = 0;  // rows per rank; 0: the run does not evaluate
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
  // Opens the prepared data, and prepares it if nobody did (see prepare.h). Throws UserError or
  // IoError when it cannot be trained on: no data, broken lines, a token id that the model's
  // vocabulary does not have.
  Loader(const LoaderOptions& options, int rank, int size);
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  int64_t num_samples() const;
  int64_t steps_per_epoch() const;
  // The step that comes after so many samples (StepBatches::samples_end). Throws UserError when
  // none starts there, which a changed global batch can bring about.
  int64_t step_of(int64_t samples) const;

  // CPU tensors. Rows are padded to the longest row of their micro-batch with token 0, which has no
  // target. A row's document is epoch * number of blocks + sample: dropout differs from epoch to
  // epoch. Not thread-safe.
  StepBatches batches(int64_t step) const;

  // Evaluation: batches 0 to num_eval_batches() - 1 on every rank, none when it is off. A batch
  // without rows has one token and no target. Targets are counted over all ranks and batches.
  int64_t num_eval_batches() const;
  int64_t num_eval_samples() const;
  int64_t num_eval_targets() const;
  tensor::Batch eval_batch(int64_t k) const;

  // Tells one training set from another: 32 hexadecimal digits of the sources, the codec, the
  // block size and the choice of samples.
  std::string data_digest() const;

 private:
  struct Parts;
  struct Prefetch;

  std::unique_ptr<const Parts> parts_;  // stays where it is when a Loader moves
  std::unique_ptr<Prefetch> prefetch_;  // absent: off
};

}  // namespace skein::data
