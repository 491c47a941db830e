// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/sample_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::data {

std::span<const int64_t> StepPlan::samples_of(int64_t begin, int64_t end) const {
  const auto start_of = [&](int64_t pack) {
    return pack == 0 ? 0 : pack_ends[static_cast<size_t>(pack - 1)];
  };
  return std::span(samples).subspan(start_of(begin), start_of(end) - start_of(begin));
}

SamplePlan::SamplePlan(const SampleSet& set, const SampleOrder& order)
    : SamplePlan(set.count(), std::make_shared<SinglePacks>(set, order.seed), order) {}

SamplePlan::SamplePlan(int64_t num_samples, std::shared_ptr<const Packs> packs,
                       const SampleOrder& order)
    : num_samples_(num_samples),
      packs_(std::move(packs)),
      order_(order),
      steps_(packs_, order.global_batch, order.drop_last) {
  SKEIN_CHECK(order.global_batch > 0 && num_samples > 0, "nothing to plan");
  if (order.drop_last && packs_->count(0) < order.global_batch) {
    throw UserError(fmt::format(
        "dataloader_drop_last: true leaves nothing to train on: the data has {} samples, a global "
        "batch takes {}; give a smaller batch or block_size, or dataloader_drop_last: false",
        packs_->count(0), order.global_batch));
  }
}

StepPlan SamplePlan::step_plan(int64_t step) const {
  SKEIN_CHECK(step >= 0, fmt::format("step {}", step));
  StepPlan plan;
  plan.epoch_index = steps_.epoch_of_step(step);
  const auto before = steps_.before(plan.epoch_index);
  const int64_t inside = step - before.steps;
  plan.epoch = steps_.epochs_of(step + 1);
  const int64_t begin = inside * order_.global_batch;
  const int64_t end = begin + std::min(order_.global_batch, steps_.packs(plan.epoch_index) - begin);
  plan.samples_end = before.packs + end;

  plan.samples.reserve(static_cast<size_t>(end - begin));
  for (int64_t pack = begin; pack < end; ++pack) {
    packs_->append(plan.epoch_index, pack, plan.samples);
    plan.pack_ends.push_back(plan.samples.size());
  }
  return plan;
}

int64_t SamplePlan::step_of(int64_t samples) const {
  SKEIN_CHECK(samples >= 0, fmt::format("{} samples", samples));
  // What another global batch dropped at the end of an epoch is not known here.
  const bool drops = !packs_->is_even() || packs_->count(0) % order_.global_batch != 0;
  if (order_.drop_last && samples > steps_.packs(0) && drops) {
    throw UserError(fmt::format(
        "cannot continue after {} samples with a global batch of {}: with dataloader_drop_last, "
        "epochs of another global batch have another length; keep the global batch",
        samples, order_.global_batch));
  }
  const int64_t epoch = steps_.epoch_of_packs(samples);
  const auto before = steps_.before(epoch);
  const int64_t rest = samples - before.packs;
  if (rest % order_.global_batch != 0) {
    throw UserError(fmt::format(
        "cannot continue after {} samples with a global batch of {}: {} samples into an epoch, no "
        "step starts; keep the global batch or take one that divides {}",
        samples, order_.global_batch, rest, rest));
  }
  return before.steps + rest / order_.global_batch;
}

}  // namespace skein::data
