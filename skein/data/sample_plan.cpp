// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/sample_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/data/permutation.h"

namespace skein::data {

SamplePlan::SamplePlan(const SampleSet& set, const SampleOrder& order) : set_(set), order_(order) {
  SKEIN_CHECK(order.global_batch > 0 && set.count() > 0, "nothing to plan");
  const int64_t rest = set.count() % order.global_batch;
  samples_per_epoch_ = set.count() - (order.drop_last ? rest : 0);
  steps_per_epoch_ =
      samples_per_epoch_ / order.global_batch + (!order.drop_last && rest > 0 ? 1 : 0);
  if (steps_per_epoch_ == 0) {
    throw UserError(fmt::format(
        "dataloader_drop_last: true leaves nothing to train on: the data has {} samples, a global "
        "batch takes {}; give a smaller batch or block_size, or dataloader_drop_last: false",
        set.count(), order.global_batch));
  }
}

StepPlan SamplePlan::step_plan(int64_t step) const {
  SKEIN_CHECK(step >= 0, fmt::format("step {}", step));
  StepPlan plan;
  plan.epoch_index = step / steps_per_epoch_;
  plan.epoch = static_cast<double>(step + 1) / static_cast<double>(steps_per_epoch_);
  const int64_t begin = step % steps_per_epoch_ * order_.global_batch;
  const int64_t end = begin + std::min(order_.global_batch, samples_per_epoch_ - begin);
  plan.samples_end = plan.epoch_index * samples_per_epoch_ + end;

  const auto key = epoch_key(order_.seed, static_cast<uint64_t>(plan.epoch_index));
  const auto count = static_cast<uint64_t>(set_.count());
  plan.samples.reserve(static_cast<size_t>(end - begin));
  for (int64_t index = begin; index < end; ++index) {
    const auto place = permuted(static_cast<uint64_t>(index), count, key);
    plan.samples.push_back(set_.sample(static_cast<int64_t>(place)));
  }
  return plan;
}

int64_t SamplePlan::step_of(int64_t samples) const {
  SKEIN_CHECK(samples >= 0, fmt::format("{} samples", samples));
  // What another global batch dropped at the end of an epoch is not known here.
  if (order_.drop_last && samples > samples_per_epoch_ && set_.count() % order_.global_batch != 0) {
    throw UserError(fmt::format(
        "cannot continue after {} samples with a global batch of {}: with dataloader_drop_last, "
        "epochs of another global batch have another length; keep the global batch",
        samples, order_.global_batch));
  }
  const int64_t epoch = samples / samples_per_epoch_, rest = samples % samples_per_epoch_;
  if (rest % order_.global_batch != 0) {
    throw UserError(fmt::format(
        "cannot continue after {} samples with a global batch of {}: {} samples into an epoch, no "
        "step starts; keep the global batch or take one that divides {}",
        samples, order_.global_batch, rest, rest));
  }
  return epoch * steps_per_epoch_ + rest / order_.global_batch;
}

}  // namespace skein::data
