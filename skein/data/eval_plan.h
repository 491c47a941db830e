// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which samples does a rank evaluate in its k-th batch?
//
// Every sample exactly once, in order. Batch k takes the next per_device * size samples in
// contiguous runs of per_device; all ranks have the same number of batches, and some of the last
// ones may be short or empty.

#include <cstdint>
#include <vector>

#include "skein/data/sample_set.h"

namespace skein::data {

class EvalPlan {
 public:
  EvalPlan(const SampleSet& set, int64_t per_device, int64_t size);

  int64_t num_samples() const { return set_.count(); }
  int64_t num_batches() const;
  // Requires 0 <= k < num_batches() and 0 <= rank < size.
  std::vector<int64_t> samples(int64_t k, int64_t rank) const;

 private:
  SampleSet set_;
  int64_t per_device_;
  int64_t size_;
};

}  // namespace skein::data
