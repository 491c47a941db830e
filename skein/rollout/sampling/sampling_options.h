// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How is the next token drawn? What people say of it; ops/decode/sampling.h does it.
//
// In transformers' order: repetition penalty, temperature, top-k, top-p, min-p. The random number
// is keyed by (seed, step, prompt, sample, position), so that a sample never depends on the batch
// it is in, on other samples, or on how often it was interrupted.

#include <cstdint>

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

}  // namespace skein::rollout
