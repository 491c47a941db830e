// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a sample, and what does it hold?
//
// Samples are numbered, and their number is their id. How long each is and how many targets it has
// is known without reading it: the order of a run, and the number of targets that a step's loss is
// divided by, follow from the plan alone. Samples may differ in length; the loader pads.

#include <cstdint>
#include <span>

namespace skein::data {

// All calls are thread-safe and give the same answer every time. Each requires
// 0 <= sample < count().
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual int64_t count() const = 0;
  virtual int64_t length(int64_t sample) const = 0;  // in tokens, at least 1
  virtual int64_t num_targets(int64_t sample) const = 0;
  // Fills both, which are length(sample) long: the tokens, and the token that each position
  // predicts, tensor::kIgnore where none. num_targets(sample) of them are not kIgnore.
  virtual void read(int64_t sample, std::span<int64_t> tokens,
                    std::span<int64_t> targets) const = 0;
};

}  // namespace skein::data
