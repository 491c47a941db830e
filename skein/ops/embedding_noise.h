// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// NEFTune: uniform noise on embeddings while training.
//
// x + u · alpha / sqrt(L · C), u uniform in [-1, 1), L the length of the token's own document. As
// with dropout, u depends on what it is added to, never on how a batch was split, packed or padded:
// it comes from the stream of (seed, step), and in it from document, position and channel.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace skein::ops {

struct EmbeddingNoise {
  double alpha = 0;     // 0 returns the input itself
  uint64_t stream = 0;  // of dropout_stream()
  // Of every row, (B) int64 on the input's device; beside positions of every token, (T).
  at::Tensor documents{};
  at::Tensor lengths{};    // in tokens; undefined: T
  at::Tensor positions{};  // (T) int64 of a run of documents
};

// x (B, T, C), float32, float64, bfloat16 or float16; rounded once. Its gradient passes as it is.
at::Tensor embedding_noise(const at::Tensor& x, const EmbeddingNoise& noise);

}  // namespace skein::ops
