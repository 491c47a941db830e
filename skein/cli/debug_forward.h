// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein-worker debug-forward MODEL TOKENS OUT [DTYPE]: what does one forward and backward pass of a
// checkpoint compute? For the parity tests; not shown in the help.
//
// TOKENS is a safetensors file with `tokens` (B, T) int64. OUT gets `logits` (B, T, V), `loss_sum`
// (1) float64 over the next tokens, and `grad.NAME` of loss_sum / number of targets for every
// parameter. Dropout is off. DTYPE is float32 (the default), float64 or bfloat16.

#include <span>
#include <string>

namespace skein::cli {

int run_debug_forward(std::span<const std::string> arguments);

}  // namespace skein::cli
