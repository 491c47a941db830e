// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much memory will a rank need? Without LibTorch: for plans.
//
// Flat memory (weights, gradients, optimizer states) follows from the shapes and is exact;
// activations depend on what kernels keep and are an estimate. Frozen weights have neither
// gradients nor states, and their layers do not keep their inputs.
//
// A step needs most when the head runs: all activations are there, and the head's own tensors.

#include <algorithm>
#include <cstdint>
#include <string>

#include "skein/optim/offload.h"
#include "skein/plan/families/architecture.h"

namespace skein::plan {

struct MemoryQuestion {
  int stage = 0;  // of sharding
  int64_t ranks = 1;
  int64_t weight_bytes = 4;          // per element: 2, 4 or 8
  int64_t gradient_bytes = 4;        // per element
  double state_bytes = 8;            // per element, exact: optim::state_bytes()
  double adapter_state_bytes = 8;    // the same of adapters, which are fp32 beside 16-bit weights
  int64_t micro_batches = 1;         // per update
  int64_t rows = 1;                  // of a micro-batch
  int64_t tokens = 1;                // of a row
  bool recompute = false;            // gradient_checkpointing
  bool offload_activations = false;  // with it, on GPUs
  bool adapter_dropout = false;      // lora_dropout
  bool cuda = false;                 // else a CPU
  optim::Offload offload{};
};

// On the device, but for the last two.
struct FlatBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t states = 0;  // of the optimizer
  // Stages 2 and 3, while backward runs: two units' gradients and the root units'. Stage 3 also:
  // two gathered units and the root units whole. Gradients that the host updates from are on their
  // way at every stage, where nothing accumulates.
  int64_t transient = 0;
  int64_t host = 0, disk = 0;  // what is offloaded

  int64_t held() const { return weights + gradients + states; }  // when the weights are updated
  int64_t peak() const { return held() + transient; }
};
FlatBytes flat_bytes(const Shapes& shapes, const MemoryQuestion& question);

struct Activations {
  int64_t kept = 0;  // from forward to backward
  int64_t host = 0;  // of it in host memory, beside it: offload_activations
  int64_t head = 0;  // while it runs: logits of one chunk, d_weight as a wide sum, d_hidden
  // A block's gradients as autograd gives them, before flat memory has them, and what the reduction
  // of the unit before receives; the values of one weight in 4 bits.
  int64_t unit = 0;
  std::string formula;  // of `kept`, with the numbers put in

  int64_t peak() const { return kept + std::max(head, unit); }
};
Activations activation_bytes(const Shapes& shapes, const Dimensions& dimensions,
                             const MemoryQuestion& question);

// All of it at the worst moment of a step. At stages 0 and 1 whole gradients come into being while
// backward lets activations go, unless earlier micro-batches have left them.
int64_t step_peak(const FlatBytes& flat, const Activations& activations,
                  const MemoryQuestion& question);

// Of the head's chunks of logits, as in ops/linear_cross_entropy.h, which a test holds it to.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;
constexpr int64_t kCudaChunkFactor = 16;

}  // namespace skein::plan
