// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a sample, and what does it hold?
//
// Samples are numbered, and their number is their id. How long each is and how many targets it has
// is known without reading it: the order of a run, and the number of targets that a step's loss is
// divided by, follow from the plan alone. Samples may differ in length; the loader pads.
//
// A sample is one document, or several that go through the model together and do not see each
// other, as the two answers of a pair.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skein/tensor/host_batch.h"

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

  virtual tensor::Counts counts_of(int64_t sample) const {
    return {.targets = num_targets(sample), .samples = 1};
  }
  // The most documents that a sample has.
  virtual int64_t documents_per_sample() const { return 1; }
  // Appends where each of its documents ends, counted from the sample's first token.
  virtual void append_ends(int64_t sample, std::vector<int64_t>& ends) const {
    ends.push_back(length(sample));
  }
  // Tokens that all its documents begin with, and of which none but the last has a target in any.
  virtual int64_t shared_tokens(int64_t) const { return 0; }
  // What is known of the documents of a batch that is made of these samples, in their order; null
  // where nobody has judged them.
  virtual std::shared_ptr<const tensor::HostAnswers> answers(std::span<const int64_t>) const {
    return nullptr;
  }
};

}  // namespace skein::data
