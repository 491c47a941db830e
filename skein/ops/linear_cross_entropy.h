// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The output head and its loss in one, without ever holding all logits.
//
// logits = hidden · weightᵀ are made, used and dropped in chunks of rows, so memory does not grow
// with N · V. Rows are independent: a split of the rows changes the results by rounding alone.
// Row losses are fp32 (fp64 for float64 inputs), from logits in the inputs' dtype as Hugging Face
// computes them. Rows whose target is tensor::kIgnore give zero loss and zero gradients. Gradients
// of gradients are not available.
//
// Factors of a loss (row weights, gradients that come in) are fp32 (fp64 for float64 inputs) and
// are never rounded to 16 bits: the length of a gradient does not depend on the number of targets.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace skein::ops {

constexpr int64_t kCudaChunkFactor = 16;

struct HeadOptions {
  // Of one chunk, as fp32; larger: fewer, larger products. A GPU takes kCudaChunkFactor as much.
  int64_t logits_bytes = int64_t{64} << 20;
  // Rows of the weight beyond it are padding: in no sum, and their gradient is zero. 0: none is.
  int64_t vocabulary = 0;
  // Logits become cap · tanh(logit / cap), in their dtype; 0: no cap. Holds one more chunk.
  double cap = 0;
  // ε: of a row's target this share is spread evenly over the vocabulary, below 1. The loss becomes
  // (1 - ε) · -log p(target) + ε · the mean over the vocabulary of -log p.
  double smoothing = 0;
  // Of linear_log_probs(): logits are divided by it, behind the cap, in the dtype of the results.
  double temperature = 1;
  // Whether linear_log_probs() gives these too. Each holds one more chunk.
  bool entropy = false, mean_logit = false;
};

// What logits are made of: (hidden · weightᵀ + inner · bᵀ) · factor. The last three are an
// adapter's and may be undefined: of a frozen weight then nothing of its size is made, neither a
// sum with the adapter nor a gradient.
struct HeadProduct {
  at::Tensor hidden;    // (N, C)
  at::Tensor weight;    // (V, C)
  at::Tensor inner{};   // (N, rank), in hidden's dtype
  at::Tensor b{};       // (V, rank); may be wider than hidden, and its gradient is then too
  at::Tensor factor{};  // (V), DoRA's; may be wider too. Holds one more chunk of logits
};

// targets (N) int64, weights (N) or undefined (all one; a constant to autograd) -> float64 scalar:
// sum of weights[n] · -log p(targets[n] | hidden[n]), smoothed.
//
// When gradients are wanted they are made in forward, chunk by chunk, while the logits are there:
// one product less than computing the logits again, for d_weight (V, C) held until backward (under
// 16 bits an fp32 sum while forward runs). Backward runs once.
at::Tensor linear_cross_entropy_sum(const HeadProduct& product, const at::Tensor& targets,
                                    const at::Tensor& weights, const HeadOptions& options = {});

// (N) each, fp32 (fp64 for float64 inputs), 0 in ignored rows. The last two are undefined unless
// asked for, and have no gradient.
struct RowNumbers {
  at::Tensor log_probs;
  at::Tensor entropy{};      // of p(· | hidden[n]), in nats
  at::Tensor mean_logits{};  // over the vocabulary, before the temperature
};

// log p(targets[n] | hidden[n]). Never smoothed: a probability is what it is.
// Backward makes the logits again, since each row has its own incoming gradient.
RowNumbers linear_log_probs(const HeadProduct& product, const at::Tensor& targets,
                            const HeadOptions& options = {});

}  // namespace skein::ops
