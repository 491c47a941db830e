// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which token comes next, given the logits of one row?
//
// In transformers' order: repetition penalty, temperature, top-k, top-p, min-p. The random number
// is keyed by (seed, step, prompt, sample, position), so that a sample never depends on the batch
// it is in, on other samples, or on how often it was interrupted. Free of torch.

#include <cstdint>
#include <span>
#include <vector>

namespace skein::rollout {

struct SamplingOptions {
  double temperature = 1;         // 0: always the likeliest token
  int64_t top_k = 0;              // only the k likeliest; 0: all
  double top_p = 1;               // only the likeliest that together have this probability
  double min_p = 0;               // only those at least this times as likely as the likeliest
  double repetition_penalty = 1;  // above 1: what the row holds already becomes less likely
  uint64_t seed = 0;
  uint64_t step = 0;  // of the training that samples: another one draws other numbers

  // Throws UserError that names the option and the values it takes.
  void check() const;
};

// Names one draw.
struct DrawKey {
  uint64_t prompt = 0;
  uint64_t sample = 0;    // of that prompt
  uint64_t position = 0;  // of the token in its row, the prompt counted
};

// In [0, 1), 53 bits.
double uniform(const SamplingOptions& options, const DrawKey& key);

// Keeps scratch memory between calls. Not thread-safe.
class Sampler {
 public:
  // Checks the options.
  explicit Sampler(const SamplingOptions& options);

  // Changes `logits`. `seen` holds every token of the row once, and matters only to the penalty.
  // Throws UserError for logits that are not numbers.
  int64_t pick(std::span<float> logits, std::span<const int64_t> seen, const DrawKey& key);

 private:
  int64_t draw(std::span<const float> logits, const DrawKey& key);
  // The `count` likeliest tokens are in order at the front of ranks_.
  void rank(std::span<const float> logits, size_t count);

  SamplingOptions options_;
  std::vector<int32_t> ranks_;  // tokens, the likeliest first as far as num_ranked_
  size_t num_ranked_ = 0;
};

}  // namespace skein::rollout
