// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which completions of a step does a rank sample, and train on?
//
// They are numbered prompt by prompt: prompt · generations + generation. A mini-batch is the next
// global batch of them; each rank takes its next per_device · accumulation, and each of its
// micro-batches the next per_device of these. So a rank has whole groups where they fit, and trains
// on what it has sampled: no text travels. Every split trains a mini-batch on the same completions.

#include <cstdint>
#include <vector>

namespace skein::train {

struct DealOptions {
  int64_t completions = 0;   // of the step; an epoch's last one may be short
  int64_t mini_batches = 1;  // of a whole step
  int64_t per_device = 1;
  int64_t accumulation = 1;
  int rank = 0;
  int size = 1;
};

// Numbers from begin to end.
struct Numbers {
  int64_t begin = 0, end = 0;

  int64_t count() const { return end - begin; }
};

class Deal {
 public:
  explicit Deal(const DealOptions& options) : options_(options) {}

  // Those that have a completion, on some rank.
  int64_t num_mini_batches() const;
  int64_t num_micro_batches() const { return options_.accumulation; }
  int64_t num_completions() const { return options_.completions; }
  // Of all ranks.
  Numbers mini_batch(int64_t mini) const;
  // This rank's; perhaps none.
  Numbers micro_batch(int64_t mini, int64_t micro) const;
  // All that this rank has, in order.
  std::vector<int64_t> own() const;

 private:
  int64_t global() const { return options_.per_device * options_.accumulation * options_.size; }
  Numbers within(int64_t begin, int64_t count) const;

  DealOptions options_;
};

}  // namespace skein::train
