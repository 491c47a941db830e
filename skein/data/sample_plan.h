// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which samples belong to a step?
//
// Epochs follow each other, each a permutation of all samples named by (seed, epoch) and cut into
// global batches. The last step of an epoch may be short; with drop_last it does not exist. Where
// samples are packed (packs.h), a global batch counts packs. The plan is a pure function of the
// step and knows no ranks: every split of a global batch over ranks and micro-batches sees the same
// samples.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skein/data/packs.h"
#include "skein/data/sample_set.h"

namespace skein::data {

struct SampleOrder {
  int64_t global_batch = 1;  // packs per step
  uint64_t seed = 0;
  bool drop_last = false;  // leave out the last incomplete global batch of an epoch
};

struct StepPlan {
  std::vector<int64_t> samples;   // ids, in the order in which they are dealt
  std::vector<size_t> pack_ends;  // where in `samples` each pack ends
  int64_t epoch_index = 0;        // the epoch that the samples belong to
  int64_t samples_end = 0;        // packs used since the start of the run, this step included
  double epoch = 0;               // epochs done after this step, for logs

  int64_t num_packs() const { return std::ssize(pack_ends); }
  // Of packs `begin` to `end`.
  std::span<const int64_t> samples_of(int64_t begin, int64_t end) const;
};

class SamplePlan {
 public:
  // Each sample alone. Throws UserError when drop_last leaves no step at all. Requires
  // set.count() > 0.
  SamplePlan(const SampleSet& set, const SampleOrder& order);
  // The same for packs, which hold so many samples; of `order` the seed is not used.
  SamplePlan(int64_t num_samples, std::shared_ptr<const Packs> packs, const SampleOrder& order);

  int64_t num_samples() const { return num_samples_; }
  // Of the first epoch; others may differ where samples are packed.
  int64_t steps_per_epoch() const { return steps_.steps(0); }
  const EpochSteps& epoch_steps() const { return steps_; }
  // Requires step >= 0; steps count from 0 and never end.
  StepPlan step_plan(int64_t step) const;
  // The step that comes after so many packs, also when another global batch was used until
  // there. Throws UserError when no step starts at that position.
  int64_t step_of(int64_t samples) const;

 private:
  int64_t num_samples_;
  std::shared_ptr<const Packs> packs_;
  SampleOrder order_;
  EpochSteps steps_;
};

}  // namespace skein::data
