// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Causal attention: position t sees positions 0 … t, or the last few of them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "skein/ops/dropout.h"
#include "skein/tensor/batch.h"

namespace skein::ops {

struct AttentionOptions {
  std::optional<double> scale{};  // of the scores; 1/√D unless given
  int64_t window = 0;             // how many positions a token sees, its own among them; 0: all
  // Scores become cap · tanh(score / cap). No fused kernel here does it: as with dropout.
  std::optional<double> cap{};
  // On the probabilities. No fused kernel can draw from our streams: with a probability above 0 a
  // call holds two (B, H, T, T) tensors and their gradients.
  Dropout dropout{};
};

// q (B, H, T, D), k and v (B, G, T, D) with G dividing H (grouped-query attention) -> (B, H, T, D).
// Fused where nothing is dropped or capped, and never with a mask tensor: cuDNN's gradients are
// wrong with one. A window shorter than T is fused on GPUs in 16 bits, and holds scores elsewhere.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options = {});

// The same within each document of a run, which sees the document that it continues too: q (1, H,
// T, D), k and v (1, G, T, D) -> (1, H, T, D). The dropout's documents are (N). One varlen kernel
// on GPUs in 16 bits, two where prompts are shared (attention/shared_attention.h); else document by
// document.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const tensor::DocumentRun& run, const AttentionOptions& options = {});

// cap · tanh(x / cap); x itself where there is no cap.
at::Tensor soft_cap(const at::Tensor& x, std::optional<double> cap);

}  // namespace skein::ops
