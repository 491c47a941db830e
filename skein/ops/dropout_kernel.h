// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One call of the dropout kernels, in raw pointers: the contract between ops/dropout.cpp and its
// backends. Free of torch, C++17: nvcc reads it too.

#include <cstdint>

#include "skein/core/dtype.h"
#include "skein/core/random.h"

namespace skein::ops {

// Contiguous (batch, heads, tokens, width) arrays; heads is 1 for (B, T, C) activations.
struct DropoutCall {
  const void* input = nullptr;
  void* output = nullptr;
  const int64_t* documents = nullptr;  // (batch), on the same device; (tokens) beside positions
  const int64_t* positions = nullptr;  // (tokens) of one row; null: a token's index
  int64_t batch = 0, heads = 1, tokens = 0, width = 0;
  uint64_t stream = 0;
  uint32_t threshold = 0;    // words below it drop: probability · 2³²
  double scale = 1;          // of what is kept
  DType type = DType::kF32;  // or kF64, kBF16, kF16
};

constexpr int kDropoutHeadShift = 20;  // channel = head · 2²⁰ + column
constexpr int kDropoutWords = 4;       // elements per Philox call

// The words of columns 4 · group to 4 · group + 3 of row (document, head, token).
SKEIN_HOST_DEVICE inline random::Words dropout_words(uint64_t stream, int64_t document,
                                                     int64_t head, int64_t token, int64_t group) {
  const auto channel_group =
      (static_cast<uint64_t>(head) << (kDropoutHeadShift - 2)) + static_cast<uint64_t>(group);
  return random::philox(stream, (static_cast<uint64_t>(token) << 32) + channel_group,
                        static_cast<uint64_t>(document));
}

// What the words of a row (batch, head, token) are named by.
struct DropoutRow {
  int64_t document, head, position;
};
SKEIN_HOST_DEVICE inline DropoutRow dropout_row(const DropoutCall& call, int64_t row) {
  const int64_t token = row % call.tokens, head = row / call.tokens % call.heads;
  if (call.positions) return {call.documents[token], head, call.positions[token]};
  return {call.documents[row / call.tokens / call.heads], head, token};
}

void dropout_on_cpu(const DropoutCall& call);
// On torch's current stream. Throws UserError in a build without CUDA.
void dropout_on_cuda(const DropoutCall& call);

}  // namespace skein::ops
