// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Dropout whose mask depends on what is dropped, never on how a batch was split or padded.
//
// An element is kept when a word of Philox says so; kept elements are divided by 1 - p. The stream
// is named by (seed, step, layer, site); inside it, the element of document d at position t and
// channel c takes word c % 4 of counter (low: t · 2³² + c / 4, high: d). No mask is stored:
// backward draws it again.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "skein/tensor/batch.h"

namespace skein::ops {

// Part of the stream's name: append only, or resumed runs draw other masks.
enum class DropoutSite : uint8_t {
  kEmbedding = 0,
  kAttention = 1,
  kAttentionOutput = 2,
  kMlpOutput = 3,
  kAdapter = 4  // the module's name is mixed in
};

struct Dropout {
  double probability = 0;  // of dropping; 0 returns the input itself
  uint64_t stream = 0;     // of dropout_stream()
  at::Tensor documents;    // (B) int64, on the input's device
  // Of the tokens of a run of documents (tensor::DocumentRun): (T) int64, and `documents` is (T).
  at::Tensor positions{};
};

uint64_t dropout_stream(const tensor::StepKey& key, int64_t layer, DropoutSite site);

// x (B, T, C): position and channel are the indices, or the position is that of a run.
at::Tensor dropout(const at::Tensor& x, const Dropout& options);

// The same, constant to autograd. It is its own gradient: for backward passes that drop again.
at::Tensor drop(const at::Tensor& x, const Dropout& options);

// Attention probabilities (B, H, T, S) with S below 2²⁰: the position is the query's, the channel
// is head · 2²⁰ + key position, so that padding a batch to a longer T moves nothing.
at::Tensor attention_dropout(const at::Tensor& probabilities, const Dropout& options);

}  // namespace skein::ops
