// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Causal attention: position t sees positions 0 … t.

#include <ATen/core/Tensor.h>

#include <optional>

#include "skein/ops/dropout.h"

namespace skein::ops {

struct AttentionOptions {
  std::optional<double> scale{};  // of the scores; 1/√D unless given
  // On the probabilities. No fused kernel can draw from our streams: with a probability above 0 a
  // call holds two (B, H, T, T) tensors and their gradients.
  Dropout dropout{};
};

// q (B, H, T, D), k and v (B, G, T, D) with G dividing H (grouped-query attention) -> (B, H, T, D).
// Fused where nothing is dropped, and never with a mask tensor: cuDNN's gradients are wrong with
// one.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options = {});

}  // namespace skein::ops
