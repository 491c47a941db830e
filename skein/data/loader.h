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
// Where samples are packed, packs are dealt in their place, and a micro-batch is one run of all the
// documents of its packs (see RunSamples::are_runs).
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
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/data/run_samples.h"
#include "skein/tensor/host_batch.h"

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
  std::vector<tensor::HostBatch> micro_batches;  // this rank's; always `accumulation` of them
  // The same prompts with answers to others (ChosenSamples::mismatched), one for each; else none.
  std::vector<tensor::HostBatch> mismatched;
  tensor::Counts counts;         // of the whole step, over all ranks
  std::vector<int64_t> samples;  // ids of the whole step, the same on every rank
  std::vector<int64_t> lengths;  // of their documents, padding left out
  // What of these is not computed: of prompts that are shared, the tokens computed once, a number
  // for each document but the first.
  std::vector<int64_t> shared;
  int64_t samples_end = 0;  // samples (or packs) used since the start
  double epoch = 0;         // epochs done after this step, for logs
};

// The documents of samples as one micro-batch: a row each, padded to the longest, or behind each
// other as a run, in which documents of a sample may share what they begin with
// (runs/run_writer.h). Without any, one token that predicts nothing: weight zero. Document d of a
// sample is number
// (`first_sample` + the sample's) * source.documents_per_sample() + d.
tensor::HostBatch make_rows(const SampleSource& source, std::span<const int64_t> samples,
                            int64_t first_sample);
tensor::HostBatch make_run(const SampleSource& source, std::span<const int64_t> samples,
                           int64_t first_sample, bool share_prompts = false);

class Loader {
 public:
  // Over the blocks of the configured data. Throws what open_blocks() does.
  Loader(const LoaderOptions& options, int rank, int size);
  // Over any samples. Of options.data only what names the order and reading ahead is used.
  Loader(RunSamples samples, const LoaderOptions& options, int rank, int size);
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  int64_t num_samples() const;
  int64_t steps_per_epoch() const;  // of the first epoch; others may differ where it packs
  // Of every epoch.
  const EpochSteps& epoch_steps() const;
  // The step that comes after so many samples (StepBatches::samples_end). Throws UserError when
  // none starts there, which a changed global batch can bring about.
  int64_t step_of(int64_t samples) const;

  // Rows are padded to the longest row of their micro-batch with token 0, which has no target; a
  // run of documents is not padded. Samples of epoch e count on from e * number of all samples:
  // dropout differs from epoch to epoch. Not thread-safe.
  StepBatches batches(int64_t step) const;

  // Evaluation: batches 0 to num_eval_batches() - 1 on every rank, none when it is off. A batch
  // without rows has one token and no target. Counted over all ranks and batches.
  int64_t num_eval_batches() const;
  int64_t num_eval_samples() const;
  tensor::Counts eval_counts() const;
  tensor::HostBatch eval_batch(int64_t k) const;
  // Its mismatched view, where there is one.
  std::optional<tensor::HostBatch> eval_mismatched(int64_t k) const;

  // RunSamples::digest.
  const std::string& data_digest() const;

 private:
  struct Parts;
  struct Prefetch;

  std::unique_ptr<const Parts> parts_;  // stays where it is when a Loader moves
  std::unique_ptr<Prefetch> prefetch_;  // absent: off
};

}  // namespace skein::data
