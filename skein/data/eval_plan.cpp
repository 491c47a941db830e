// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/eval_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::data {

EvalPlan::EvalPlan(const SampleSet& set, int64_t per_device, int64_t size)
    : set_(set), per_device_(per_device), size_(size) {
  SKEIN_CHECK(per_device > 0 && size > 0, "nothing to plan");
}

int64_t EvalPlan::num_batches() const {
  const int64_t together = per_device_ * size_;
  return (set_.count() + together - 1) / together;
}

std::vector<int64_t> EvalPlan::samples(int64_t k, int64_t rank) const {
  SKEIN_CHECK(0 <= k && k < num_batches() && 0 <= rank && rank < size_,
              fmt::format("batch {} of rank {}", k, rank));
  const int64_t begin = std::min((k * size_ + rank) * per_device_, set_.count());
  const int64_t end = std::min(begin + per_device_, set_.count());
  std::vector<int64_t> samples;
  for (int64_t i = begin; i < end; ++i) samples.push_back(set_.sample(i));
  return samples;
}

}  // namespace skein::data
