// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much memory will a rank need? Without LibTorch: for plans.
//
// Flat memory (weights, gradients, optimizer states) follows from the shapes and is exact;
// activations depend on what kernels keep and are an estimate.

#include <cstdint>
#include <string>

#include "skein/plan/architecture.h"

namespace skein::plan {

struct MemoryQuestion {
  int stage = 0;  // of sharding
  int64_t ranks = 1;
  int64_t weight_bytes = 4;    // per element: 2, 4 or 8
  int64_t gradient_bytes = 4;  // per element
  int64_t state_bytes = 8;     // per element: optim::state_bytes()
  bool accumulates = false;    // more than one micro-batch per update
  int64_t rows = 1;            // of a micro-batch
  int64_t tokens = 1;          // of a row
  bool recompute = false;      // gradient_checkpointing
};

struct FlatBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t states = 0;  // of the optimizer
  // Stages 2 and 3, while backward runs: two units' gradients and the root units'. Stage 3 also:
  // two gathered units and the root units whole.
  int64_t transient = 0;

  int64_t held() const { return weights + gradients + states; }
  int64_t peak() const { return held() + transient; }
};
FlatBytes flat_bytes(const Shapes& shapes, const MemoryQuestion& question);

struct Activations {
  int64_t bytes = 0;
  std::string formula;  // with the numbers put in
};
Activations activation_bytes(const Dimensions& dimensions, const MemoryQuestion& question);

}  // namespace skein::plan
