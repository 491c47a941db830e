// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One call of the noise kernels, in raw pointers: the contract between ops/embedding_noise.cpp and
// its backends. Free of torch, C++17: nvcc reads it too.

#include <cstdint>

#include "skein/core/dtype.h"
#include "skein/core/random.h"
#include "skein/ops/dropout_kernel.h"

namespace skein::ops {

// Where and what is read and written, and what the words are named by, are a dropout's.
struct EmbeddingNoiseCall {
  DropoutCall place;
  const int64_t* lengths = nullptr;  // like place.documents; null: place.tokens
  double magnitude = 0;              // alpha / sqrt(width)
};

SKEIN_HOST_DEVICE inline int64_t document_length(const EmbeddingNoiseCall& call, int64_t row) {
  if (!call.lengths) return call.place.tokens;
  return call.lengths[call.place.positions ? row % call.place.tokens : row / call.place.tokens];
}

// In [-1, 1).
SKEIN_HOST_DEVICE inline float to_signed_unit(uint32_t word) {
  return 2 * random::to_unit(word) - 1;
}

void embedding_noise_on_cpu(const EmbeddingNoiseCall& call);
// On torch's current stream. Throws UserError in a build without CUDA.
void embedding_noise_on_cuda(const EmbeddingNoiseCall& call);

}  // namespace skein::ops
