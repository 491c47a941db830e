// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/sample_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/data/permutation.h"

namespace skein::data {

SamplePlan::SamplePlan(const Blocks& blocks, const SampleOrder& order)
    : blocks_(blocks), order_(order) {
  SKEIN_CHECK(order.global_batch > 0 && blocks.count() > 0, "nothing to plan");
  const int64_t rest = blocks.count() % order.global_batch;
  samples_per_epoch_ = blocks.count() - (order.drop_last ? rest : 0);
  steps_per_epoch_ =
      samples_per_epoch_ / order.global_batch + (!order.drop_last && rest > 0 ? 1 : 0);
  if (steps_per_epoch_ == 0) {
    throw UserError(fmt::format(
        "dataloader_drop_last: true leaves nothing to train on: the data has {} samples, a global "
        "batch takes {}; give a smaller batch or block_size, or dataloader_drop_last: false",
        blocks.count(), order.global_batch));
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
  const auto count = static_cast<uint64_t>(blocks_.count());
  plan.samples.reserve(static_cast<size_t>(end - begin));
  for (int64_t index = begin; index < end; ++index) {
    const auto sample = static_cast<int64_t>(permuted(static_cast<uint64_t>(index), count, key));
    plan.samples.push_back(sample);
    plan.num_targets += blocks_.block(sample).num_targets();
  }
  return plan;
}

}  // namespace skein::data
