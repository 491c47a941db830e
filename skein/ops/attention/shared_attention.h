// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Attention of answers that continue a prompt which is computed once (tensor::SharedPrompts), as
// two fused calls:
//
//   own     every document over its own tokens, causal
//   prompt  all answers of a prompt over that prompt, the whole of it
//
// Each call gives o, what its keys alone would give, and s, the logarithm of the sum of their
// exponentials. Both together are one softmax over all keys:
//
//   s = log(exp(s_own) + exp(s_prompt))
//   o = exp(s_own - s) o_own + exp(s_prompt - s) o_prompt
//
// From the merged s and o backward of either call has the probabilities over all keys, so that it
// gives the gradients of its own keys and its part of the queries'; these are added up.

#include <ATen/core/Tensor.h>

#include <optional>

#include "skein/tensor/batch.h"

namespace skein::ops {

// document_attention() of a run with shared prompts: q (1, H, T, D), k and v (1, G, T, D) -> (1, H,
// T, D). On the CPU in every type; on GPUs in 16 bits.
at::Tensor shared_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const tensor::DocumentRun& run, std::optional<double> scale = {});

}  // namespace skein::ops
