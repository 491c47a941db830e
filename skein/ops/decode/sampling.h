// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which token comes next, given the logits of a row?
//
// In transformers' order: repetition penalty, temperature, top-k, top-p, min-p; tokens as likely as
// the last that is kept are kept too. One definition for CPU and GPU (sampling_kernel.h).

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace skein::ops {

struct SamplingOptions {
  double temperature = 1;         // 0: always the likeliest token
  int64_t top_k = 0;              // only the k likeliest; 0: all
  double top_p = 1;               // only the likeliest that together have this probability
  double min_p = 0;               // only those at least this times as likely as the likeliest
  double repetition_penalty = 1;  // above 1: what the row holds already becomes less likely
  bool log_probs = false;

  bool operator==(const SamplingOptions&) const = default;
};

// Of R rows, (R) int64 each.
struct Draws {
  at::Tensor keys;       // draw_key() of each, as bits
  at::Tensor samples;    // of its prompt
  at::Tensor positions;  // of the tokens before
  at::Tensor seen{};     // (R, V) uint8: 1 what the penalty meets, the new tokens too; or undefined
};

struct Drawn {
  at::Tensor tokens;  // (R) int64
  // (R) float64: at the temperature (of 0: at 1), of all tokens and without the penalty; 0 where
  // nobody asks for them. Not a number where logits are none.
  at::Tensor log_probs;
};

// logits (R, V)
Drawn sample(const at::Tensor& logits, const SamplingOptions& options, const Draws& draws);

}  // namespace skein::ops
